#pragma once
/* Shared by the programs of this folder: expectations, which end a program with 1 and a line that states what
 * was expected and where, and helpers that open handles. C11 and C++20; for programs of one file. */

#include <moeflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition) expect((condition) != 0, #condition, __FILE__, __LINE__)
#define EXPECT_STATUS(call, status, facts) expect_status((call), (status), (facts), #call, __FILE__, __LINE__)
#define EXPECT_OK(call) EXPECT_STATUS((call), MF_OK, NULL)

enum { kMost = 4096 }; /* tokens of a vocabulary */

static mf_message why;

static void expect(int kept, const char* what, const char* file, int line) {
  if (kept) return;
  fprintf(stderr, "%s:%d: expected %s; last message: %s\n", file, line, what, why.text);
  exit(1);
}

/* `facts` are parts of the message of a failure, separated by '|'. */
static void expect_status(mf_status found, mf_status wanted, const char* facts, const char* what,
                          const char* file, int line) {
  if (found != wanted) {
    fprintf(stderr, "%s:%d: %s: expected %s, found %s: %s\n", file, line, what, mf_status_name(wanted),
            mf_status_name(found), why.text);
    exit(1);
  }
  while (facts != NULL) {
    char fact[128];
    const char* const end = strchr(facts, '|');
    const size_t size = end != NULL ? (size_t)(end - facts) : strlen(facts);
    expect(size < sizeof fact, "a fact of fewer than 128 bytes", file, line);
    memcpy(fact, facts, size);
    fact[size] = '\0';
    expect(strstr(why.text, fact) != NULL, fact, file, line);
    facts = end != NULL ? end + 1 : NULL;
  }
}

static float* new_logits(const size_t rows) {
  float* const logits = (float*)calloc(rows * kMost, sizeof(float));
  EXPECT(logits != NULL);
  return logits;
}

static int same(const float* a, const float* b, size_t count) {
  return memcmp(a, b, count * sizeof(float)) == 0;
}

static mf_engine_options engine_options(const char* path) {
  mf_engine_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.packed_model = path;
  options.threads = 1;
  return options;
}

static inline mf_engine* open_engine(const char* path) {
  const mf_engine_options options = engine_options(path);
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  return engine;
}

static inline mf_session* open_session(mf_engine* engine) {
  mf_session* session = NULL;
  EXPECT_OK(mf_session_open(engine, NULL, &session, &why));
  return session;
}
