#pragma once
// EXPECT_CONTRACT(statement, "promise"): the statement breaks the promise and the program ends saying so.
//
// A death test in a process of its own, so it also holds where threads run. Under ThreadSanitizer, whose
// runtime does not survive that, it does nothing. Test code only.

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
