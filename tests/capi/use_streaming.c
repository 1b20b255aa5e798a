/* use_streaming QWEN DEEPSEEK SPOILED: streaming of experts through moeflux.h.
 *
 * QWEN and DEEPSEEK are packed models; SPOILED is like QWEN, and spoiled here. Compiled as C11 and as C++20.
 * Exits with 0, or with 1 after a line that says what was expected. */

#include <moeflux.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "expectations.h"

enum { kTokens = 40 };

static uint32_t ids[kTokens];

/* As compiled when the structs had no fields of streaming: bytes after the old size must not change. */
static void an_older_caller_gets_what_it_knew(const char* model) {
  mf_engine_options options = engine_options(model);
  options.io = "none of its business";
  options.prefetch = 77;
  options.struct_size = offsetof(mf_engine_options, expert_cache_bytes);
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_engine_info info;
  memset(&info, 0x55, sizeof info);
  info.struct_size = offsetof(mf_engine_info, expert_slots);
  EXPECT_OK(mf_engine_get_info(engine, &info, &why));
  EXPECT(info.struct_size == offsetof(mf_engine_info, expert_slots) && info.vocabulary == 512);
  EXPECT(info.expert_slots == 0x55555555 && info.expert_records == 0x55555555);
  info.struct_size -= 8;
  EXPECT_STATUS(mf_engine_get_info(engine, &info, &why), MF_INVALID_ARGUMENT, "struct_size");
  mf_engine_close(engine);
}

static void numerics_go_by_name(const char* model) {
  mf_engine_options options = engine_options(model);
  mf_engine* engine = NULL;
  options.precision = "rough";
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "precision|exact|fast|'rough'");
  options.precision = "fast";
  options.kv_numbers = "f8";
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT,
                "kv_numbers|f32|bf16|int8|'f8'");
  options.kv_numbers = "int8";
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_engine_close(engine);
}

/* Layer 3 has experts in both models. */
static const char* expert_file(const char* model, int layer) {
  static char path[4200];
  snprintf(path, sizeof path, "%s/experts/layer_%03d.bin", model, layer);
  return path;
}

/* Options of an engine that holds half of a layer's experts and streams the rest. */
static mf_engine_options streaming_options(const char* model, const char* io, mf_prefetch prefetch) {
  mf_engine_options options = engine_options(model);
  FILE* const file = fopen(expert_file(model, 3), "rb");
  EXPECT(file != NULL && fseek(file, 0, SEEK_END) == 0);
  options.expert_cache_bytes = (uint64_t)ftell(file) / 2;
  fclose(file);
  options.io = io;
  options.prefetch = prefetch;
  return options;
}

static mf_expert_statistics expert_statistics(const mf_engine* engine) {
  mf_expert_statistics statistics;
  memset(&statistics, 0, sizeof statistics);
  statistics.struct_size = sizeof statistics;
  EXPECT_OK(mf_engine_get_expert_statistics(engine, &statistics, &why));
  EXPECT(statistics.struct_size == sizeof statistics && statistics.reserved == 0);
  return statistics;
}

/* A prompt, then single tokens: prefetch guesses from the token before. */
static void run_tokens(mf_engine* engine, float* logits) {
  mf_session* const session = open_session(engine);
  EXPECT_OK(mf_session_extend(session, ids, 10, logits, NULL, &why));
  for (int i = 10; i < kTokens; ++i) EXPECT_OK(mf_session_extend(session, ids + i, 1, logits, NULL, &why));
  mf_session_close(session);
}

static void streaming_options_that_make_no_sense_are_refused(const char* model) {
  mf_engine* engine = NULL;
  mf_engine_options options = engine_options(model);
  options.io = "tape";
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "io|'tape'");
  options = engine_options(model);
  options.prefetch = 2;
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT,
                "prefetch|0 (previous)|1 (off)|found 2");
  options = engine_options(model);
  options.expert_cache_bytes = 1;
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "too small");
  EXPECT(engine == NULL);

  engine = open_engine(model);
  mf_expert_statistics statistics;
  memset(&statistics, 0, sizeof statistics);
  EXPECT_STATUS(mf_engine_get_expert_statistics(engine, &statistics, &why), MF_INVALID_ARGUMENT,
                "struct_size");
  EXPECT_STATUS(mf_engine_get_expert_statistics(engine, NULL, &why), MF_INVALID_ARGUMENT, "statistics");
  EXPECT_STATUS(mf_engine_get_expert_statistics(NULL, &statistics, &why), MF_INVALID_ARGUMENT, "engine");
  mf_engine_close(engine);
}

static void streamed_experts_give_the_logits_of_held_ones(const char* model) {
  static const char* const ways[] = {NULL, "uring", "pread", "buffered", "sim:3G,1us"};
  float *const held = new_logits(1), *const streamed = new_logits(1);
  mf_engine* engine = open_engine(model);
  run_tokens(engine, held);
  EXPECT(expert_statistics(engine).hits > 0 && expert_statistics(engine).wasted_bytes == 0);
  mf_engine_close(engine);
  for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; ++i) {
    const mf_prefetch prefetch = i % 2 == 0 ? MF_PREFETCH_PREVIOUS : MF_PREFETCH_OFF;
    mf_engine_options options = streaming_options(model, ways[i / 2], prefetch);
    options.verify_reads = i < 2;
    EXPECT_OK(mf_engine_open(&options, &engine, &why));
    mf_engine_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    EXPECT_OK(mf_engine_get_info(engine, &info, &why));
    EXPECT(info.expert_slots > 0 && info.expert_slots < info.expert_records && strlen(info.drive) > 0);
    EXPECT(expert_statistics(engine).hits + expert_statistics(engine).misses == 0);

    run_tokens(engine, streamed);
    EXPECT(same(held, streamed, 512));
    const mf_expert_statistics found = expert_statistics(engine);
    EXPECT(found.misses > 0 && found.reads >= found.misses && found.demanded_bytes > found.misses);
    EXPECT(found.filled_bytes == 0);
    const uint64_t guesses = found.useful_guesses + found.late_guesses + found.wrong_guesses;
    if (prefetch == MF_PREFETCH_PREVIOUS)
      EXPECT(guesses > 0 && found.speculated_bytes > guesses);
    else
      EXPECT(guesses == 0 && found.speculated_bytes == 0 && found.late_bytes + found.useful_bytes == 0);
    mf_engine_close(engine);
  }
  free(held);
  free(streamed);
}

/* Writes zeros over a model's experts, or cuts them off. */
static void spoil_experts(const char* model, int cut_off) {
  for (int layer = 0; layer < 8; ++layer) {
    FILE* file = fopen(expert_file(model, layer), "rb+");
    if (file == NULL) continue; /* a dense layer */
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    EXPECT(size > 0 && fseek(file, 0, SEEK_SET) == 0);
    for (long i = 0; i < size && !cut_off; ++i) EXPECT(fputc(0, file) == 0);
    EXPECT(fclose(file) == 0);
    if (!cut_off) continue;
    file = fopen(expert_file(model, layer), "wb");
    EXPECT(file != NULL && fclose(file) == 0);
  }
}

static void an_expert_that_cannot_be_read_is_a_failure_with_a_reason(const char* spoiled) {
  const mf_engine_options options = streaming_options(spoiled, "buffered", MF_PREFETCH_PREVIOUS);
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_session* const session = open_session(engine);
  EXPECT_OK(mf_session_extend(session, ids, 10, NULL, NULL, &why));
  for (int cut_off = 0; cut_off < 2; ++cut_off) {
    spoil_experts(spoiled, cut_off);
    EXPECT_STATUS(mf_session_extend(session, ids + 10, 20, NULL, NULL, &why), MF_IO_FAILED,
                  cut_off ? "cut off" : "changed since it was opened");
    EXPECT(strstr(why.text, "reading expert") != NULL && strstr(why.text, "/experts/layer_") != NULL);
    EXPECT(mf_session_position(session) == 10);
  }
  mf_session_close(session);
  mf_engine_close(engine);
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_CORRUPT_DATA, "/experts/layer_");
}

int main(int count, char** arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: use_streaming QWEN DEEPSEEK SPOILED\n");
    return 2;
  }
  for (uint32_t i = 0; i < kTokens; ++i) ids[i] = (i * 37 + 11) % 509;
  an_older_caller_gets_what_it_knew(arguments[1]);
  numerics_go_by_name(arguments[1]);
  streaming_options_that_make_no_sense_are_refused(arguments[1]);
  streamed_experts_give_the_logits_of_held_ones(arguments[1]);
  streamed_experts_give_the_logits_of_held_ones(arguments[2]);
  an_expert_that_cannot_be_read_is_a_failure_with_a_reason(arguments[3]);
  printf("experts were streamed, and failures told\n");
  return 0;
}
