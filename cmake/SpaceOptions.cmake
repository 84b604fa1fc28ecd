# Compiler, warnings, sanitizers and the precompiled header: the same for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(SPACE_SANITIZE "" CACHE STRING "Sanitizers for every target: empty, 'address,undefined' or 'thread'")
option(SPACE_FUZZ "Build the libFuzzer targets (needs Clang)" OFF)
option(SPACE_PCH "Use the precompiled header" ON)
option(SPACE_UNITY "Compile files in batches (cmake/SpaceModule.cmake)" ON)

find_program(SPACE_CCACHE ccache)
if(SPACE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SPACE_CCACHE})
endif()

add_library(space_options INTERFACE)
target_compile_options(space_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wconversion -Wno-sign-conversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside the frames of coroutines and in optimised library code where nothing is wrong.
  target_compile_options(space_options INTERFACE -fpch-preprocess -Wno-maybe-uninitialized -Wno-mismatched-new-delete -Wno-dangling-pointer -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  if(SPACE_UNITY)  # a batch is a file that includes others, whose unnamed namespaces it then takes for a header's
    target_compile_options(space_options INTERFACE -Wno-subobject-linkage)
  endif()
else()
  # For sanitizers and fuzzing: GCC's warnings are the ones that stop a build. ccache compares what the precompiled header says, not its time.
  target_compile_options(space_options INTERFACE -Wno-error "SHELL:-Xclang -fno-pch-timestamp")
endif()
target_compile_definitions(space_options INTERFACE SPDLOG_FMT_EXTERNAL BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED BOOST_BEAST_SEPARATE_COMPILATION
                           BOOST_ALL_NO_LIB BOOST_CONTAINER_NO_LIB BOOST_JSON_NO_LIB BOOST_URL_NO_LIB BOOST_SYSTEM_NO_LIB
                           SPACE_VERSION="${PROJECT_VERSION}" _FILE_OFFSET_BITS=64)
# Optional hardening that costs next to nothing.
target_compile_options(space_options INTERFACE -fstack-protector-strong -fno-omit-frame-pointer -fPIE)
target_link_options(space_options INTERFACE $<$<NOT:$<BOOL:$<TARGET_PROPERTY:SPACE_STATIC>>>:-pie>)
target_compile_definitions(space_options INTERFACE $<$<CONFIG:Release>:_GLIBCXX_ASSERTIONS>)

find_program(SPACE_MOLD mold)
if(SPACE_MOLD)
  target_link_options(space_options INTERFACE -fuse-ld=mold)
endif()

if(SPACE_SANITIZE)
  target_compile_definitions(space_options INTERFACE SPACE_SANITIZED)
  target_compile_options(space_options INTERFACE -fsanitize=${SPACE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(space_options INTERFACE -fsanitize=${SPACE_SANITIZE})
  if(SPACE_SANITIZE STREQUAL "thread")
    # ThreadSanitizer knows no fences; without them Asio relies on the locks around its queues, which it does know.
    target_compile_definitions(space_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Clang 14 cannot emit this check for coroutines ("Cannot represent a difference across sections").
    # Nor does the check of virtual tables work behind a filter of system calls, which it takes for unreadable memory.
    target_compile_options(space_options INTERFACE -fno-sanitize=function,vptr)
  endif()
endif()

if(SPACE_FUZZ)
  target_compile_options(space_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Boost as headers over its own shared libraries; Asio and Beast are compiled once into space_http (src/base/asio_impl.cc).
set(Boost_USE_STATIC_LIBS ON)  # the agent is one static file, and one kind of library is enough for both programs
find_package(Boost 1.81 REQUIRED COMPONENTS json url)
find_package(OpenSSL 3 REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(PkgConfig REQUIRED)
