# Declares targets: one library per folder of the layer table (ARCHITECTURE.md), one test program beside it,
# and the compiler options for all of our own code.

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

# For our own code only: warnings are errors, and the compiler never contracts a*b+c (docs/arithmetic.md), so
# that every compiler and ISA gives the same bits.
add_library(moeflux_options INTERFACE)
target_compile_options(moeflux_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(moeflux_options INTERFACE -Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # gcc 12 warns of overlapping copies where a string is joined with a literal (gcc bug 105651).
  target_compile_options(moeflux_options INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()
target_include_directories(moeflux_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(MOEFLUX_SANITIZE)
  target_compile_options(moeflux_options INTERFACE
    -fsanitize=${MOEFLUX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(moeflux_options INTERFACE -fsanitize=${MOEFLUX_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # According to gcc's manual, this warning has many false positives with sanitizers.
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

# All g++ builds compile eight files as one (CMAKE_UNITY_BUILD), which halves the time. A file whose internal
# names clash with those of another file is ALONE. Those with tests, which are built often, also precompile
# the headers that most of the library includes; at -O3 gcc 12 gives false warnings about strings from
# precompiled headers. The clang builds do neither, so they find a file that does not include what it uses.
set(MOEFLUX_LAYER_PCH OFF)
if(CMAKE_UNITY_BUILD AND MOEFLUX_TESTS)
  set(MOEFLUX_LAYER_PCH ON)
  file(WRITE ${CMAKE_BINARY_DIR}/moeflux_layer_pch.cpp "")
  add_library(moeflux_layer_pch OBJECT ${CMAKE_BINARY_DIR}/moeflux_layer_pch.cpp)
  target_link_libraries(moeflux_layer_pch PRIVATE moeflux_options fmt::fmt nlohmann_json::nlohmann_json tl::expected
                        Threads::Threads PkgConfig::xxhash)
  target_precompile_headers(moeflux_layer_pch PRIVATE <fmt/format.h> <nlohmann/json.hpp> <tl/expected.hpp>
                            <algorithm> <filesystem> <functional> <memory> <string> <variant> <vector>)
endif()
if(CMAKE_UNITY_BUILD)
  # In a unity build every source is an included file, but its types are still local to it.
  target_compile_options(moeflux_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
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
  if(MOEFLUX_LAYER_PCH)
    target_precompile_headers(moeflux_${name} REUSE_FROM moeflux_layer_pch)
  endif()
endfunction()

# Precompiles the headers that every test includes, once for all test programs. They take most of a test's
# compile time (9 s per file at -O2 without this, 4 s at -O1 with it, 3 s at -O0). Tests are not optimized,
# but the code under test is. Under sanitizers, which are slow, tests are optimized too.
if(MOEFLUX_SANITIZE)
  set(MOEFLUX_TEST_OPTIMIZATION -O1)
else()
  set(MOEFLUX_TEST_OPTIMIZATION -O0)
endif()
if(MOEFLUX_TESTS)
  file(WRITE ${CMAKE_BINARY_DIR}/moeflux_test_pch.cpp "")
  add_library(moeflux_test_pch OBJECT ${CMAKE_BINARY_DIR}/moeflux_test_pch.cpp)
  # The compiler's default, here and in moeflux_test(): a PIC header does not match a PIE test.
  set_target_properties(moeflux_test_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_link_libraries(moeflux_test_pch PRIVATE moeflux_options GTest::gtest_main GTest::gmock rapidcheck fmt::fmt
                        nlohmann_json::nlohmann_json tl::expected Threads::Threads)
  target_compile_definitions(moeflux_test_pch PRIVATE MOEFLUX_REPOSITORY="${CMAKE_SOURCE_DIR}")
  target_compile_options(moeflux_test_pch PRIVATE ${MOEFLUX_TEST_OPTIMIZATION})
  target_precompile_headers(moeflux_test_pch PRIVATE <gmock/gmock.h> <gtest/gtest.h> <rapidcheck/gtest.h>
                            <fmt/format.h> <nlohmann/json.hpp> <filesystem> <string> <vector>)
endif()

# moeflux_test(NAME SOURCES a_test.cpp ... ALONE a_test.cpp ... DEPENDS target ...)
#   One GoogleTest program. Each of its cases is a ctest test. MOEFLUX_REPOSITORY is the path of test data.
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
