"""Words that a generated identifier must not be: a catalogue.

`KEYWORDS` are those of C and C++ (with the alternative tokens), `CUDA_NAMES` what nvcc and NVRTC define in every file,
`MACROS` what their headers define as macros, `MATH` the functions that CUDA declares there, `LIBRARY` these and the C library's, which
an exported symbol would replace.

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

MACROS = frozenset(
    """
    ADJ_ESTERROR ADJ_FREQUENCY ADJ_MAXERROR ADJ_MICRO ADJ_NANO ADJ_OFFSET ADJ_OFFSET_SINGLESHOT ADJ_OFFSET_SS_READ ADJ_SETOFFSET
    ADJ_STATUS ADJ_TAI ADJ_TICK ADJ_TIMECONST AIO_PRIO_DELTA_MAX BC_BASE_MAX BC_DIM_MAX BC_SCALE_MAX BC_STRING_MAX BIG_ENDIAN
    BOOL_MAX BOOL_WIDTH BUFSIZ BYTE_ORDER CHARCLASS_NAME_MAX CHAR_BIT CHAR_MAX CHAR_MIN CHAR_WIDTH CLOCKS_PER_SEC CLOCK_BOOTTIME
    CLOCK_BOOTTIME_ALARM CLOCK_MONOTONIC CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME
    CLOCK_REALTIME_ALARM CLOCK_REALTIME_COARSE CLOCK_TAI CLOCK_THREAD_CPUTIME_ID COLL_WEIGHTS_MAX CUDARTAPI CUDARTAPI_CDECL CUDART_CB
    CUDART_DEVICE CUDART_VERSION CUDA_DOUBLE_MATH_FUNCTIONS CUDA_IPC_HANDLE_SIZE CU_UUID_HAS_BEEN_DEFINED DELAYTIMER_MAX EOF
    EXIT_FAILURE EXIT_SUCCESS EXPR_NEST_MAX FD_CLR FD_ISSET FD_SET FD_SETSIZE FD_ZERO FILENAME_MAX FOPEN_MAX FP_ILOGB0 FP_ILOGBNAN
    FP_INFINITE FP_INT_DOWNWARD FP_INT_TONEAREST FP_INT_TONEARESTFROMZERO FP_INT_TOWARDZERO FP_INT_UPWARD FP_LLOGB0 FP_LLOGBNAN
    FP_NAN FP_NORMAL FP_SUBNORMAL FP_ZERO HOST_NAME_MAX HUGE_VAL HUGE_VALF HUGE_VALL HUGE_VAL_F32 HUGE_VAL_F32X HUGE_VAL_F64
    HUGE_VAL_F64X INFINITY INT_MAX INT_MIN INT_WIDTH IOV_MAX LINE_MAX LITTLE_ENDIAN LLONG_MAX LLONG_MIN LLONG_WIDTH LOGIN_NAME_MAX
    LONG_BIT LONG_LONG_MAX LONG_LONG_MIN LONG_MAX LONG_MIN LONG_WIDTH L_ctermid L_cuserid L_tmpnam MATH_ERREXCEPT MATH_ERRNO MAXFLOAT
    MAX_CANON MAX_INPUT MB_CUR_MAX MB_LEN_MAX MOD_CLKA MOD_CLKB MOD_ESTERROR MOD_FREQUENCY MOD_MAXERROR MOD_MICRO MOD_NANO MOD_OFFSET
    MOD_STATUS MOD_TAI MOD_TIMECONST MQ_PRIO_MAX M_1_PI M_1_PIf M_1_PIf32 M_1_PIf32x M_1_PIf64 M_1_PIf64x M_1_PIl M_2_PI M_2_PIf
    M_2_PIf32 M_2_PIf32x M_2_PIf64 M_2_PIf64x M_2_PIl M_2_SQRTPI M_2_SQRTPIf M_2_SQRTPIf32 M_2_SQRTPIf32x M_2_SQRTPIf64
    M_2_SQRTPIf64x M_2_SQRTPIl M_E M_Ef M_Ef32 M_Ef32x M_Ef64 M_Ef64x M_El M_LN10 M_LN10f M_LN10f32 M_LN10f32x M_LN10f64 M_LN10f64x
    M_LN10l M_LN2 M_LN2f M_LN2f32 M_LN2f32x M_LN2f64 M_LN2f64x M_LN2l M_LOG10E M_LOG10Ef M_LOG10Ef32 M_LOG10Ef32x M_LOG10Ef64
    M_LOG10Ef64x M_LOG10El M_LOG2E M_LOG2Ef M_LOG2Ef32 M_LOG2Ef32x M_LOG2Ef64 M_LOG2Ef64x M_LOG2El M_PI M_PI_2 M_PI_2f M_PI_2f32
    M_PI_2f32x M_PI_2f64 M_PI_2f64x M_PI_2l M_PI_4 M_PI_4f M_PI_4f32 M_PI_4f32x M_PI_4f64 M_PI_4f64x M_PI_4l M_PIf M_PIf32 M_PIf32x
    M_PIf64 M_PIf64x M_PIl M_SQRT1_2 M_SQRT1_2f M_SQRT1_2f32 M_SQRT1_2f32x M_SQRT1_2f64 M_SQRT1_2f64x M_SQRT1_2l M_SQRT2 M_SQRT2f
    M_SQRT2f32 M_SQRT2f32x M_SQRT2f64 M_SQRT2f64x M_SQRT2l NAME_MAX NAN NFDBITS NGROUPS_MAX NL_ARGMAX NL_LANGMAX NL_MSGMAX NL_NMAX
    NL_SETMAX NL_TEXTMAX NULL NZERO PATH_MAX PDP_ENDIAN PIPE_BUF PTHREAD_DESTRUCTOR_ITERATIONS PTHREAD_KEYS_MAX PTHREAD_STACK_MIN
    P_tmpdir RAND_MAX RENAME_EXCHANGE RENAME_NOREPLACE RENAME_WHITEOUT RE_DUP_MAX RTSIG_MAX SCHAR_MAX SCHAR_MIN SCHAR_WIDTH SEEK_CUR
    SEEK_DATA SEEK_END SEEK_HOLE SEEK_SET SEM_VALUE_MAX SHRT_MAX SHRT_MIN SHRT_WIDTH SNAN SNANF SNANF32 SNANF32X SNANF64 SNANF64X
    SNANL SSIZE_MAX STA_CLK STA_CLOCKERR STA_DEL STA_FLL STA_FREQHOLD STA_INS STA_MODE STA_NANO STA_PLL STA_PPSERROR STA_PPSFREQ
    STA_PPSJITTER STA_PPSSIGNAL STA_PPSTIME STA_PPSWANDER STA_RONLY STA_UNSYNC TIMER_ABSTIME TIME_UTC TMP_MAX TTY_NAME_MAX UCHAR_MAX
    UCHAR_WIDTH UINT_MAX UINT_WIDTH ULLONG_MAX ULLONG_WIDTH ULONG_LONG_MAX ULONG_MAX ULONG_WIDTH USHRT_MAX USHRT_WIDTH WCONTINUED
    WEXITED WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WNOHANG WNOWAIT WORD_BIT WSTOPPED WSTOPSIG WTERMSIG WUNTRACED
    XATTR_LIST_MAX XATTR_NAME_MAX XATTR_SIZE_MAX alloca assert assert_perror be16toh be32toh be64toh htobe16 htobe32 htobe64 htole16
    htole32 htole64 isalnum_l isalpha_l isascii isascii_l isblank_l iscntrl_l isdigit_l isgraph_l islower_l isprint_l ispunct_l
    isspace_l issubnormal isupper_l isxdigit_l le16toh le32toh le64toh math_errhandling offsetof stderr stdin stdout strdupa strndupa
    toascii toascii_l
    """.split()
)
"""Macros of nvcc's host pass (CUDA 13, glibc): a name of one of these would be replaced by its text. `cuda...` and `CU_...` apart."""

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
