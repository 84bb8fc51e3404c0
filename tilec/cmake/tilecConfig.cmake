# find_package(tilec): turns tile kernels in Python into CUDA files and headers while a project is built.
#
#     execute_process(COMMAND tilec --cmake-dir OUTPUT_VARIABLE tilec_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
#     find_package(tilec REQUIRED)
#     tilec_add_kernels(program SOURCES gemm.py saxpy.py DEFINES M=4096 dtype=bfloat16)
#
# Needs CMake 3.20 or newer, with Ninja or makefiles, and the language CUDA.

if(CMAKE_VERSION VERSION_LESS 3.20)
  set(tilec_FOUND FALSE)
  set(tilec_NOT_FOUND_MESSAGE "tilec needs CMake 3.20 or newer; this is ${CMAKE_VERSION}")
  return()
endif()

get_filename_component(_tilec_package "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
find_program(TILEC_EXECUTABLE tilec
  HINTS "$ENV{VIRTUAL_ENV}/bin" "${_tilec_package}/../../../../bin" "${_tilec_package}/../.venv/bin"
  DOC "The tilec command")
if(NOT TILEC_EXECUTABLE)
  set(tilec_FOUND FALSE)
  set(tilec_NOT_FOUND_MESSAGE "the command tilec is not on the PATH; set TILEC_EXECUTABLE")
  return()
endif()

# The architectures that tilec writes for; a GPU between two of them runs the older one's code.
set(_tilec_architectures 80 86 89 90)

# tilec_add_kernels(TARGET SOURCES FILE.py... [DEFINES NAME=VALUE...] [ARCH sm_80...] [INCLUDE DIR...] [OPTIONS OPTION...])
#
# Compiles each FILE.py to FILE.cu and FILE.h and adds them to TARGET, whose sources and users can include the headers. A TARGET that
# does not exist becomes a static library. DEFINES give compile-time parameters values. ARCH is what the kernels are written for; by
# default it follows the target's CUDA_ARCHITECTURES, which CMAKE_CUDA_ARCHITECTURES sets. INCLUDE are folders of modules that the
# kernels import, OPTIONS further options of `tilec compile`.
function(tilec_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEFINES;ARCH;INCLUDE;OPTIONS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "tilec_add_kernels(TARGET SOURCES FILE.py... [DEFINES ...] [ARCH ...] [INCLUDE ...] [OPTIONS ...]): "
      "${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT TARGET ${target})
    add_library(${target} STATIC)
  endif()
  if(NOT arg_ARCH)
    get_target_property(numbers ${target} CUDA_ARCHITECTURES)
    _tilec_names(arg_ARCH ${numbers})
  endif()
  list(JOIN arg_ARCH "," arch)
  set(flags ${arg_OPTIONS})
  foreach(define IN LISTS arg_DEFINES)
    list(APPEND flags -D "${define}")
  endforeach()
  foreach(folder IN LISTS arg_INCLUDE)
    get_filename_component(folder "${folder}" ABSOLUTE)
    list(APPEND flags -I "${folder}")
  endforeach()

  set(out "${CMAKE_CURRENT_BINARY_DIR}/tilec/${target}")
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(absolute "${source}" ABSOLUTE)
    get_filename_component(name "${source}" NAME_WE)
    file(RELATIVE_PATH spelled "${CMAKE_CURRENT_SOURCE_DIR}" "${absolute}")
    file(MAKE_DIRECTORY "${out}")
    _tilec_project(project "${absolute}")
    # The path is spelled from the source folder, so that the text of the output does not depend on where the project lies.
    add_custom_command(
      OUTPUT "${out}/${name}.cu" "${out}/${name}.h"
      COMMAND "${TILEC_EXECUTABLE}" compile "${spelled}" -q --arch ${arch} ${flags}
        -o "${out}/${name}.cu" --header "${out}/${name}.h" -MD -MA -MF "${out}/${name}.d" -MT "${out}/${name}.cu"
      DEPENDS "${absolute}" ${project}
      DEPFILE "${out}/${name}.d"
      WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
      COMMENT "tilec ${spelled}"
      VERBATIM)
    target_sources(${target} PRIVATE "${out}/${name}.cu" "${out}/${name}.h")
  endforeach()
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${out}>")
  # The headers include <cuda_runtime.h>, which compilers of C and C++ do not find by themselves.
  target_include_directories(${target} SYSTEM PUBLIC "$<BUILD_INTERFACE:${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES}>")
endfunction()

# The pyproject.toml that is the nearest to a file, and a look before every build whether one that is nearer has appeared.
function(_tilec_project result file)
  set(found "")
  get_filename_component(folder "${file}" DIRECTORY)
  while(NOT found)
    file(GLOB found CONFIGURE_DEPENDS "${folder}/pyproject.toml")
    get_filename_component(above "${folder}" DIRECTORY)
    if(above STREQUAL folder)
      break()
    endif()
    set(folder "${above}")
  endwhile()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# What tilec calls the architectures of a CUDA_ARCHITECTURES list: 80-real;90a -> sm_80;sm_90a
function(_tilec_names result)
  set(names "")
  foreach(entry IN LISTS ARGN)
    if(entry STREQUAL "native" AND CMAKE_CUDA_ARCHITECTURES_NATIVE)
      _tilec_names(found ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
      list(APPEND names ${found})
    elseif(entry MATCHES "^([0-9]+)([af]?)(-real|-virtual)?$")
      set(number "${CMAKE_MATCH_1}")
      if(number LESS 80)
        message(FATAL_ERROR "tilec writes for sm_80 and newer, and CUDA_ARCHITECTURES has ${entry}: set CMAKE_CUDA_ARCHITECTURES")
      endif()
      if("${number}${CMAKE_MATCH_2}" STREQUAL "90a")
        list(APPEND names sm_90a)
      else()
        set(best 80)
        foreach(known IN LISTS _tilec_architectures)
          if(NOT known GREATER number)
            set(best ${known})
          endif()
        endforeach()
        list(APPEND names "sm_${best}")
      endif()
    else()  # all, all-major, OFF: the oldest, which runs everywhere
      list(APPEND names sm_80)
    endif()
  endforeach()
  if(NOT names)
    set(names sm_80)
  endif()
  list(REMOVE_DUPLICATES names)
  set(${result} ${names} PARENT_SCOPE)
endfunction()
