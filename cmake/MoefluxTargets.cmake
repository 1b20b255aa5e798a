# How targets are declared: one library a folder of the layer table (ARCHITECTURE.md), one test program
# beside it, and the options that all of our own code is compiled with.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

if(MOEFLUX_TESTS)
  enable_testing()  # before the first folder: ctest does not see tests that were declared earlier
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
endif()

# Our own code only: warnings are errors, and a*b+c is never contracted by the compiler (docs: the law of
# arithmetic), so that every compiler and ISA gives the same bits.
add_library(moeflux_options INTERFACE)
target_compile_options(moeflux_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(moeflux_options INTERFACE -Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # gcc 12 sees overlapping copies where a string is put together from another and a literal (gcc bug 105651).
  target_compile_options(moeflux_options INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()
target_include_directories(moeflux_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(MOEFLUX_SANITIZE)
  target_compile_options(moeflux_options INTERFACE
    -fsanitize=${MOEFLUX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(moeflux_options INTERFACE -fsanitize=${MOEFLUX_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # gcc's own manual: with sanitizers this warning has many false positives.
    target_compile_options(moeflux_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
if(MOEFLUX_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "MOEFLUX_FUZZ needs clang: libFuzzer is part of it")
  endif()
  # Into the libraries as well: the fuzzer is guided by the code that an input reaches there.
  target_compile_options(moeflux_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# What most of the library includes, compiled once, in builds with tests: they are built often. The release build has
# no precompiled headers, so a file that forgets to include what it uses is found there.
if(MOEFLUX_TESTS)
  file(WRITE ${CMAKE_BINARY_DIR}/moeflux_layer_pch.cpp "")
  add_library(moeflux_layer_pch OBJECT ${CMAKE_BINARY_DIR}/moeflux_layer_pch.cpp)
  target_link_libraries(moeflux_layer_pch PRIVATE moeflux_options fmt::fmt nlohmann_json::nlohmann_json tl::expected
                        Threads::Threads PkgConfig::xxhash)
  target_precompile_headers(moeflux_layer_pch PRIVATE <fmt/format.h> <nlohmann/json.hpp> <tl/expected.hpp>
                            <algorithm> <filesystem> <functional> <memory> <string> <variant> <vector>)
endif()

# The builds dev, asan and tsan compile eight files as one (CMAKE_UNITY_BUILD), which takes half the time. A file that has a
# name of its own which another file has too is ALONE. The builds release and clang compile file by file.
if(CMAKE_UNITY_BUILD)
  # Every file is an included one there, whose types are its own all the same.
  target_compile_options(moeflux_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
function(moeflux_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# moeflux_layer(NAME SOURCES a.cpp ... ALONE a.cpp ... DEPENDS layer ... LIBRARIES lib ...)
#   The folder NAME of src/. DEPENDS repeats its row of the layer table; tools/check_layers.py compares both.
function(moeflux_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;ALONE;DEPENDS;LIBRARIES" ${ARGN})
  moeflux_alone(${LAYER_ALONE})
  add_library(moeflux_${name} STATIC ${LAYER_SOURCES})
  list(TRANSFORM LAYER_DEPENDS PREPEND moeflux_)
  target_link_libraries(moeflux_${name} PUBLIC ${LAYER_DEPENDS} ${LAYER_LIBRARIES} PRIVATE moeflux_options)
  target_include_directories(moeflux_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  if(MOEFLUX_TESTS)
    target_precompile_headers(moeflux_${name} REUSE_FROM moeflux_layer_pch)
  endif()
endfunction()

# What every test includes, compiled once for all test programs: it is most of the time of a test's compilation
# (9 s a file at -O2 without it, 4 s at -O1 with it, 3 s at -O0). Tests are not optimised, but what they test is; under
# sanitizers, which make them slow, they are.
if(MOEFLUX_SANITIZE)
  set(MOEFLUX_TEST_OPTIMIZATION -O1)
else()
  set(MOEFLUX_TEST_OPTIMIZATION -O0)
endif()
if(MOEFLUX_TESTS)
  file(WRITE ${CMAKE_BINARY_DIR}/moeflux_test_pch.cpp "")
  add_library(moeflux_test_pch OBJECT ${CMAKE_BINARY_DIR}/moeflux_test_pch.cpp)
  # As the compiler has it by default, here and in moeflux_test(): PIC of the one and PIE of the other do not match.
  set_target_properties(moeflux_test_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_link_libraries(moeflux_test_pch PRIVATE moeflux_options GTest::gtest_main GTest::gmock rapidcheck fmt::fmt
                        nlohmann_json::nlohmann_json tl::expected Threads::Threads)
  target_compile_definitions(moeflux_test_pch PRIVATE MOEFLUX_REPOSITORY="${CMAKE_SOURCE_DIR}")
  target_compile_options(moeflux_test_pch PRIVATE ${MOEFLUX_TEST_OPTIMIZATION})
  target_precompile_headers(moeflux_test_pch PRIVATE <gmock/gmock.h> <gtest/gtest.h> <rapidcheck/gtest.h>
                            <fmt/format.h> <nlohmann/json.hpp> <filesystem> <string> <vector>)
endif()

# moeflux_test(NAME SOURCES a_test.cpp ... ALONE a_test.cpp ... DEPENDS target ...)
#   One GoogleTest program; each of its cases is a test of ctest. Test data is found from the repository's root.
function(moeflux_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;ALONE;DEPENDS" ${ARGN})
  if(NOT MOEFLUX_TESTS)
    return()
  endif()
  moeflux_alone(${TEST_ALONE})
  add_executable(${name} ${TEST_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_link_libraries(${name} PRIVATE moeflux_options ${TEST_DEPENDS} GTest::gtest_main GTest::gmock rapidcheck)
  target_compile_definitions(${name} PRIVATE MOEFLUX_REPOSITORY="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${MOEFLUX_TEST_OPTIMIZATION})
  target_precompile_headers(${name} REUSE_FROM moeflux_test_pch)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()
