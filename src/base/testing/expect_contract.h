#pragma once
// EXPECT_CONTRACT(statement, "promise"): the statement aborts the program with the broken promise, a regular
// expression, in its message.
//
// A death test in a new process ("threadsafe" style), so it also works while other threads run. It does
// nothing under ThreadSanitizer, which does not support death tests. Test code only.

#include <gtest/gtest.h>

#if defined(__SANITIZE_THREAD__)
#define MF_DEATH_TESTS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MF_DEATH_TESTS 0
#endif
#endif
#if !defined(MF_DEATH_TESTS)
#define MF_DEATH_TESTS 1
#endif

#if MF_DEATH_TESTS
#define EXPECT_CONTRACT(statement, promise)                 \
  do {                                                      \
    GTEST_FLAG_SET(death_test_style, "threadsafe");         \
    EXPECT_DEATH(statement, "contract violated: " promise); \
  } while (false)
#else
#define EXPECT_CONTRACT(statement, promise) \
  do {                                      \
    if (false) {                            \
      statement;                            \
    }                                       \
  } while (false)
#endif
