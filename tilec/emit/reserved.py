"""Words that a generated identifier must not be: a catalogue.

`KEYWORDS` are those of C and C++ (with the alternative tokens), `CUDA_NAMES` what nvcc and NVRTC define in every file,
`MATH` the functions that CUDA declares there, `LIBRARY` these and the C library's, which an exported symbol would replace.

    "new" in KEYWORDS;  "threadIdx" in CUDA_NAMES;  "read" in LIBRARY
"""

from __future__ import annotations

KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept
    const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double
    dynamic_cast else enum explicit export extern false final float for friend goto if import inline int long module mutable
    namespace new noexcept not not_eq nullptr operator or or_eq override private protected public register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()
)

CUDA_NAMES = frozenset(
    """
    main std cuda nv half half2 nv_half nv_bfloat16 threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 int1 int2 int3 int4 uint1 uint2
    uint4 char1 char2 char3 char4 uchar1 uchar2 uchar3 uchar4 short1 short2 short3 short4 ushort1 ushort2 ushort3 ushort4
    float1 float2 float3 float4 double1 double2 double3 double4 long1 long2 longlong1 longlong2 ulonglong1 ulonglong2 clusterDim
    clusterIdx int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t ptrdiff_t intptr_t uintptr_t ushort uint
    ulong uchar NULL INFINITY NAN HUGE_VAL EOF EXIT_SUCCESS EXIT_FAILURE RAND_MAX assert errno stdin stdout stderr offsetof
    linux unix major minor makedev clock clock64 atomicAdd atomicMax atomicMin atomicCAS atomicExch shared_memory saturate
    """.split()
)

MATH = frozenset(
    """
    abs labs llabs fabs fabsf acos acosf acosh acoshf asin asinf asinh asinhf atan atanf atan2 atan2f atanh atanhf cbrt cbrtf ceil
    ceilf copysign copysignf cos cosf cosh coshf cospi cospif erf erff erfc erfcf erfinv erfcinv erfcx exp expf exp2 exp2f exp10
    exp10f expm1 expm1f fdim fdimf floor floorf fma fmaf fmax fmaxf fmin fminf fmod fmodf frexp frexpf hypot hypotf ilogb ilogbf
    isfinite isinf isnan isnormal signbit fpclassify j0 j0f j1 j1f jn jnf y0 y0f y1 y1f yn ynf ldexp ldexpf lgamma lgammaf gamma
    gammaf llrint llround log logf log10 log10f log1p log1pf log2 log2f logb logbf lrint lround max min modf modff nan nanf
    nearbyint nearbyintf nextafter nextafterf norm norm3d norm4d normcdf normcdff pow powf pow10 rcbrt remainder remainderf remquo
    rhypot rint rintf rnorm round roundf rsqrt rsqrtf scalb scalbn scalbln significand drem finite sin sinf sinh sinhf sincos sincosf
    sinpi sinpif sqrt sqrtf tan tanf tanh tanhf tgamma tgammaf trunc truncf div ldiv lldiv imaxabs dot
    umin umax llmin llmax ullmin ullmax uabs
    """.split()
)

LIBRARY = MATH | frozenset(
    """
    abort exit atexit atof atoi atol atoll getenv setenv putenv unsetenv system malloc calloc realloc free rand srand random
    srandom drand48 qsort bsearch strtol strtod memcpy memmove memset memcmp memchr mempcpy strcpy strcat strcmp strlen strchr strstr
    strdup strtok strerror index rindex bcopy bzero bcmp ffs swab printf fprintf sprintf snprintf puts putchar getchar gets scanf
    sscanf fopen fclose fread fwrite fflush fseek ftell rewind remove rename perror tmpfile open close read write lseek dup pipe fork
    exec wait waitpid kill signal raise pause sleep usleep alarm access link unlink symlink chdir chmod chown mkdir rmdir stat fstat
    sync truncate ftruncate mount umount select poll socket bind listen accept connect send recv shutdown time ctime gmtime
    localtime mktime difftime strftime times getpid isalpha isdigit isspace toupper tolower setjmp longjmp brk sbrk mmap munmap
    mprotect ioctl fcntl syscall daemon acct sched_yield step advance hash insque remque environ optarg optind end etext edata
    tsearch hsearch lfind lsearch crypt encrypt basename dirname error warn err warnx errx glob
    """.split()
)
