/* use_everything QWEN DEEPSEEK SCRATCH ORIGINAL ORIGINAL_2BIT STALE: calls every function of moeflux.h, in
 * success and in failure.
 *
 * QWEN and DEEPSEEK are packed models with and without recurrent layers, SCRATCH a folder to write to.
 * ORIGINAL holds QWEN as the original's artifacts, in artifacts/ and root/; ORIGINAL_2BIT the same with 2-bit
 * experts, all in one folder; STALE is like that one, with a packed model that is not its own. Compiled as
 * C11 and as C++20. Exits with 0, or with 1 after a line that says what was expected. */

#include <moeflux.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expectations.h"

enum { kTokens = 40, kThreads = 8 };

static const char *qwen, *deepseek, *scratch, *original, *original_2bit, *stale;
static int32_t tokens[kTokens];
static uint32_t ids[kTokens];

static const char* in_scratch(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  return path;
}

/* ---- The original's functions -------------------------------------------------------------------------- */

static void a_model_that_cannot_be_opened_says_why(void) {
  EXPECT(mf_init_model(NULL, NULL, NULL, NULL, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "weights is NULL") != NULL);
  EXPECT(mf_init_model(in_scratch("nowhere"), NULL, NULL, NULL, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "nowhere") != NULL);
  EXPECT(mf_init_model(scratch, NULL, NULL, NULL, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "manifest.json") != NULL);
  char file[4200];
  snprintf(file, sizeof file, "%s/manifest.json", qwen);
  EXPECT(mf_init_model(file, NULL, NULL, NULL, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "manifest is NULL") != NULL);
  EXPECT(mf_init_model(file, file, NULL, NULL, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "experts_dir is NULL") != NULL);
  EXPECT(mf_init_model(file, file, NULL, qwen, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "moeflux pack") != NULL);
}

static void no_context_is_no_accident(void) {
  float logits[1] = {7};
  uint64_t hits = 1, misses = 1;
  EXPECT(mf_eval_prompt(NULL, tokens, 1, 0, 0, logits) == MF_INVALID_ARGUMENT);
  EXPECT(strcmp(mf_last_error(NULL), "ctx is NULL") == 0);
  EXPECT(mf_eval_token(NULL, 1, 0, 0, logits) == MF_INVALID_ARGUMENT);
  EXPECT(mf_memory_seq_rm(NULL, 0, 0, -1) == 0);
  EXPECT(mf_memory_seq_pos_max(NULL, 0) == -1);
  EXPECT(mf_n_vocab(NULL) == 0 && mf_n_ctx(NULL) == 0 && mf_eos(NULL) == -1 && mf_is_end(NULL, 0) == 0);
  EXPECT(mf_model_name(NULL) == NULL);
  EXPECT(mf_state_size(NULL) == 0 && mf_state_save(NULL, logits, 4) == -1 &&
         mf_state_load(NULL, logits, 4) == -1);
  EXPECT(mf_checkpoint(NULL, 0) != 0 && mf_restore_to(NULL, 0) != 0 && mf_checkpoint_count(NULL) == 0);
  mf_memory_clear(NULL);
  mf_set_max_checkpoints(NULL, 1);
  mf_prefetch_stats(NULL, &hits, &misses);
  EXPECT(hits == 0 && misses == 0);
  mf_prefetch_reset(NULL);
  mf_prefetch_clear_predictions(NULL);
  mf_free_model(NULL);
  EXPECT(logits[0] == 7);
}

static void a_context_says_what_it_is(mf_ctx* ctx, const char* path) {
  EXPECT(mf_n_vocab(ctx) == 512 && mf_n_ctx(ctx) == 4096);
  EXPECT(mf_eos(ctx) == 511 && mf_is_end(ctx, 511) && !mf_is_end(ctx, 510) && !mf_is_end(ctx, -1));
  EXPECT(strcmp(mf_model_name(ctx), strrchr(path, '/') + 1) == 0);
  EXPECT(strcmp(mf_last_error(ctx), "") == 0);
  EXPECT(mf_memory_seq_pos_max(ctx, 0) == 0 && mf_memory_seq_pos_max(ctx, -1) == 0);
  EXPECT(mf_memory_seq_pos_max(ctx, 3) == -1);
  uint64_t hits = 1, misses = 1;
  mf_prefetch_stats(ctx, &hits, &misses);
  mf_prefetch_stats(ctx, NULL, NULL);
  EXPECT(hits == 0 && misses == 0);
  mf_prefetch_reset(ctx);
  mf_prefetch_clear_predictions(ctx);
}

static void a_prompt_in_one_call_is_one_in_many(mf_ctx* ctx) {
  const size_t vocabulary = mf_n_vocab(ctx);
  float *const whole = new_logits(1), *const pieces = new_logits(1);
  whole[0] = 7;
  EXPECT(mf_eval_prompt(ctx, NULL, 0, 0, 0, whole) == 0 && whole[0] == 7);
  EXPECT(mf_eval_prompt(ctx, tokens, 0, 99, 0, NULL) == 0);
  EXPECT(mf_eval_prompt(ctx, tokens, kTokens, 0, 0, whole) == 0);
  EXPECT(mf_memory_seq_pos_max(ctx, 0) == kTokens);

  mf_memory_clear(ctx);
  EXPECT(mf_memory_seq_pos_max(ctx, 0) == 0);
  EXPECT(mf_eval_prompt(ctx, tokens, 10, 0, -1, pieces) == 0);
  for (int i = 10; i < kTokens; ++i) EXPECT(mf_eval_token(ctx, tokens[i], (size_t)i, 0, pieces) == 0);
  EXPECT(same(whole, pieces, vocabulary));
  free(whole);
  free(pieces);
}

/* The session is at kTokens. */
static void what_makes_no_sense_changes_nothing(mf_ctx* ctx) {
  float* const logits = new_logits(1);
  EXPECT(mf_eval_token(ctx, 1, 0, 0, logits) == MF_POSITION_MISMATCH);
  EXPECT(strstr(mf_last_error(ctx), "40") != NULL);
  EXPECT(mf_eval_token(ctx, 1, (size_t)-1, 0, logits) == MF_POSITION_MISMATCH);
  EXPECT(mf_eval_token(ctx, 1, kTokens, 1, logits) == MF_INVALID_ARGUMENT);
  EXPECT(strstr(mf_last_error(ctx), "seq_id 1") != NULL);
  EXPECT(mf_eval_token(ctx, 512, kTokens, 0, logits) == MF_TOKEN_OUT_OF_RANGE);
  EXPECT(mf_eval_token(ctx, -1, kTokens, 0, logits) == MF_TOKEN_OUT_OF_RANGE);
  EXPECT(mf_eval_token(ctx, 1, kTokens, 0, NULL) == MF_INVALID_ARGUMENT);
  EXPECT(mf_eval_prompt(ctx, NULL, 1, kTokens, 0, logits) == MF_INVALID_ARGUMENT);
  EXPECT(mf_eval_prompt(ctx, tokens, (size_t)-1, kTokens, 0, logits) == MF_CONTEXT_FULL);
  EXPECT(mf_memory_seq_rm(ctx, 7, 0, -1) == 0);
  EXPECT(mf_checkpoint(ctx, kTokens - 1) == MF_POSITION_MISMATCH);
  EXPECT(mf_restore_to(ctx, 3) == MF_NO_CHECKPOINT && mf_restore_to(ctx, (size_t)-1) == MF_NO_CHECKPOINT);
  EXPECT(mf_memory_seq_pos_max(ctx, 0) == kTokens && mf_checkpoint_count(ctx) == 0);
  EXPECT(strstr(mf_last_error(ctx), "no checkpoint") != NULL);
  free(logits);
}

/* The session is at kTokens; `expected` are its last logits. */
static void going_back_gives_the_same_logits(mf_ctx* ctx) {
  const size_t vocabulary = mf_n_vocab(ctx);
  float *const expected = new_logits(1), *const again = new_logits(1);
  mf_memory_clear(ctx);
  EXPECT(mf_eval_prompt(ctx, tokens, 20, 0, 0, again) == 0);
  EXPECT(mf_checkpoint(ctx, 20) == 0 && mf_checkpoint_count(ctx) == 1);
  EXPECT(mf_eval_prompt(ctx, tokens + 20, kTokens - 20, 20, 0, expected) == 0);

  EXPECT(mf_memory_seq_rm(ctx, 0, 5, 10) == 0 && mf_memory_seq_pos_max(ctx, 0) == kTokens);
  EXPECT(strstr(mf_last_error(ctx), "cannot be removed") != NULL);
  EXPECT(mf_memory_seq_rm(ctx, 0, kTokens, -1) != 0 && mf_memory_seq_pos_max(ctx, 0) == kTokens);
  EXPECT(mf_memory_seq_rm(ctx, -1, 30, kTokens) != 0 && mf_memory_seq_pos_max(ctx, 0) == 30);
  EXPECT(mf_eval_prompt(ctx, tokens + 30, kTokens - 30, 30, 0, again) == 0);
  EXPECT(same(expected, again, vocabulary));

  EXPECT(mf_restore_to(ctx, 20) == 0 && mf_memory_seq_pos_max(ctx, 0) == 20 && mf_checkpoint_count(ctx) == 1);
  EXPECT(mf_eval_prompt(ctx, tokens + 20, kTokens - 20, 20, 0, again) == 0);
  EXPECT(same(expected, again, vocabulary));

  EXPECT(mf_memory_seq_rm(ctx, 0, 10, -1) != 0 && mf_memory_seq_pos_max(ctx, 0) == 10);
  EXPECT(mf_checkpoint_count(ctx) == 0);
  EXPECT(mf_eval_prompt(ctx, tokens + 10, kTokens - 10, 10, 0, again) == 0);
  EXPECT(same(expected, again, vocabulary));

  mf_set_max_checkpoints(ctx, 1);
  EXPECT(mf_checkpoint(ctx, kTokens) == 0);
  EXPECT(mf_eval_token(ctx, 1, kTokens, 0, again) == 0);
  EXPECT(mf_checkpoint(ctx, kTokens + 1) == 0 && mf_checkpoint_count(ctx) == 1);
  EXPECT(mf_memory_seq_rm(ctx, 0, -1, -1) != 0 && mf_memory_seq_pos_max(ctx, 0) == 0);
  free(expected);
  free(again);
}

static void a_saved_state_goes_on_where_it_was(mf_ctx* ctx, mf_ctx* of_another_model) {
  const size_t vocabulary = mf_n_vocab(ctx);
  float *const expected = new_logits(1), *const again = new_logits(1);
  mf_memory_clear(ctx);
  EXPECT(mf_eval_prompt(ctx, tokens, 20, 0, 0, again) == 0);
  const size_t size = mf_state_size(ctx);
  char* const state = (char*)malloc(size);
  EXPECT(state != NULL && size > 64);
  EXPECT(mf_state_save(ctx, state, size - 1) == -1);
  EXPECT(mf_state_save(ctx, NULL, size) == -1);
  EXPECT(mf_state_save(ctx, state, size) == (long long)size);
  EXPECT(mf_eval_token(ctx, tokens[20], 20, 0, expected) == 0);
  EXPECT(mf_state_size(ctx) > size);

  state[size / 2] = (char)(state[size / 2] ^ 1);
  EXPECT(mf_state_load(ctx, state, size) == -1 && mf_memory_seq_pos_max(ctx, 0) == 21);
  state[size / 2] = (char)(state[size / 2] ^ 1);
  EXPECT(mf_state_load(ctx, state, size - 1) == -1 && mf_state_load(ctx, NULL, size) == -1);
  EXPECT(mf_state_load(ctx, state, 0) == -1 && mf_memory_seq_pos_max(ctx, 0) == 21);
  EXPECT(mf_state_load(of_another_model, state, size) == -1);
  EXPECT(mf_memory_seq_pos_max(of_another_model, 0) == 0);

  EXPECT(mf_state_load(ctx, state, size) == 0 && mf_memory_seq_pos_max(ctx, 0) == 20);
  EXPECT(mf_eval_token(ctx, tokens[20], 20, 0, again) == 0);
  EXPECT(same(expected, again, vocabulary));
  mf_memory_clear(ctx);
  free(state);
  free(expected);
  free(again);
}

static void more_experts_than_the_model_has_are_the_models_own(void) {
  float *const own = new_logits(1), *const many = new_logits(1), *const one = new_logits(1);
  mf_ctx* const a = mf_init_model(qwen, NULL, NULL, NULL, 0, 0);
  mf_ctx* const b = mf_init_model(qwen, "", "", "", 1000, 1);
  mf_ctx* const c = mf_init_model(qwen, NULL, NULL, NULL, 1, 0);
  EXPECT(a != NULL && b != NULL && c != NULL);
  EXPECT(mf_eval_prompt(a, tokens, kTokens, 0, 0, own) == 0);
  EXPECT(mf_eval_prompt(b, tokens, kTokens, 0, 0, many) == 0);
  EXPECT(mf_eval_prompt(c, tokens, kTokens, 0, 0, one) == 0);
  EXPECT(same(own, many, 512) && !same(own, one, 512));
  mf_free_model(a);
  mf_free_model(b);
  mf_free_model(c);
  free(own);
  free(many);
  free(one);
}

static void two_models_live_beside_each_other(void) {
  mf_ctx* const a = mf_init_model(qwen, NULL, NULL, NULL, 0, 0);
  mf_ctx* const b = mf_init_model(deepseek, NULL, NULL, NULL, 0, 0);
  EXPECT(a != NULL && b != NULL);
  a_context_says_what_it_is(a, qwen);
  a_context_says_what_it_is(b, deepseek);
  a_prompt_in_one_call_is_one_in_many(a);
  a_prompt_in_one_call_is_one_in_many(b);
  what_makes_no_sense_changes_nothing(a);
  what_makes_no_sense_changes_nothing(b);
  going_back_gives_the_same_logits(a);
  going_back_gives_the_same_logits(b);
  a_saved_state_goes_on_where_it_was(a, b);
  a_saved_state_goes_on_where_it_was(b, a);
  mf_free_model(a);
  mf_free_model(b);
}

/* Of the original's artifacts: 511 is in mlx/config.json, 7 in mlx/generation_config.json. */
static void knows_its_end_tokens(const mf_ctx* ctx) {
  EXPECT(mf_eos(ctx) == 7);
  EXPECT(mf_is_end(ctx, 7) && mf_is_end(ctx, 511) && !mf_is_end(ctx, 510));
}

/* The artifacts of ORIGINAL are those of QWEN. */
static void the_originals_artifacts_open_directly(void) {
  char weights[4200], manifest[4200], vocab[4200], root[4200], packed[4300];
  snprintf(weights, sizeof weights, "%s/artifacts/model_weights.bin", original);
  snprintf(manifest, sizeof manifest, "%s/artifacts/model_weights.json", original);
  snprintf(vocab, sizeof vocab, "%s/artifacts/vocab.bin", original);
  snprintf(root, sizeof root, "%s/root", original);
  snprintf(packed, sizeof packed, "%s/moeflux_packed", root);
  EXPECT(mf_init_model(weights, manifest, vocab, qwen, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "moeflux pack") != NULL);
  EXPECT(mf_init_model(weights, in_scratch("nowhere"), vocab, root, 0, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "nowhere") != NULL);
  EXPECT(mf_init_model(weights, manifest, vocab, root, 0, 1) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "packed_experts_2bit") != NULL);

  float *const expected = new_logits(1), *const found = new_logits(1);
  mf_ctx* ctx = mf_init_model(qwen, NULL, NULL, NULL, 0, 0);
  EXPECT(ctx != NULL && mf_eval_prompt(ctx, tokens, kTokens, 0, 0, expected) == 0);
  mf_free_model(ctx);
  for (int time = 0; time < 2; ++time) { /* packed the first time, reused the second */
    ctx = mf_init_model(weights, manifest, time == 0 ? vocab : NULL, root, 0, 0);
    if (ctx == NULL) fprintf(stderr, "%s\n", mf_last_error(NULL));
    EXPECT(ctx != NULL);
    EXPECT(strcmp(mf_model_name(ctx), strrchr(original, '/') + 1) == 0);
    knows_its_end_tokens(ctx);
    EXPECT(mf_eval_prompt(ctx, tokens, kTokens, 0, 0, found) == 0);
    EXPECT(same(expected, found, mf_n_vocab(ctx)));
    mf_free_model(ctx);
  }
  ctx = mf_init_model(packed, NULL, NULL, NULL, 0, 0);
  EXPECT(ctx != NULL);
  knows_its_end_tokens(ctx);
  mf_free_model(ctx);
  free(expected);
  free(found);
}

static mf_ctx* open_flat_original(const char* folder, int use_2bit) {
  char weights[4200], manifest[4200];
  snprintf(weights, sizeof weights, "%s/model_weights.bin", folder);
  snprintf(manifest, sizeof manifest, "%s/model_weights.json", folder);
  return mf_init_model(weights, manifest, NULL, folder, 0, use_2bit);
}

static void two_bit_experts_open_when_they_are_all_there_is(void) {
  float *const asked_for = new_logits(1), *const found = new_logits(1);
  mf_ctx* const a = open_flat_original(original_2bit, 1);
  mf_ctx* const b = open_flat_original(original_2bit, 0);
  EXPECT(a != NULL && b != NULL);
  EXPECT(mf_eval_prompt(a, tokens, kTokens, 0, 0, asked_for) == 0);
  EXPECT(mf_eval_prompt(b, tokens, kTokens, 0, 0, found) == 0);
  EXPECT(same(asked_for, found, 512) && asked_for[0] != 0);
  mf_free_model(a);
  mf_free_model(b);
  free(asked_for);
  free(found);
}

static void a_packed_model_of_something_else_is_refused(void) {
  EXPECT(open_flat_original(stale, 0) == NULL);
  EXPECT(strstr(mf_last_error(NULL), "other artifacts") != NULL);
}

/* ---- Engines and sessions ------------------------------------------------------------------------------ */

static mf_step_options step_options(void) {
  mf_step_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  return options;
}

/* The numbers are part of the ABI: programs that are compiled already compare with them. */
static void statuses_keep_their_numbers_and_names(void) {
  static const struct {
    mf_status status;
    int number;
    const char* name;
  } statuses[] = {
      {MF_OK, 0, "ok"},
      {MF_NOT_FOUND, 1, "not_found"},
      {MF_IO_FAILED, 2, "io_failed"},
      {MF_NO_SPACE, 3, "no_space"},
      {MF_CORRUPT_DATA, 4, "corrupt_data"},
      {MF_UNSUPPORTED, 5, "unsupported"},
      {MF_INVALID_ARGUMENT, 6, "invalid_argument"},
      {MF_OUT_OF_MEMORY, 7, "out_of_memory"},
      {MF_CANCELLED, 8, "cancelled"},
      {MF_TOKEN_OUT_OF_RANGE, 9, "token_out_of_range"},
      {MF_CONTEXT_FULL, 10, "context_full"},
      {MF_POSITION_MISMATCH, 11, "position_mismatch"},
      {MF_NO_CHECKPOINT, 12, "no_checkpoint"},
      {MF_CANNOT_TRUNCATE_RECURRENT, 13, "cannot_truncate_recurrent"},
      {MF_TOKENS_UNKNOWN, 14, "tokens_unknown"},
      {MF_BUFFER_TOO_SMALL, 15, "buffer_too_small"},
      {MF_BAD_MAGIC, 16, "bad_magic"},
      {MF_BAD_VERSION, 17, "bad_version"},
      {MF_SHAPE_MISMATCH, 18, "shape_mismatch"},
      {MF_NEGATIVE_LENGTH, 19, "negative_length"},
      {MF_LENGTH_OVERFLOW, 20, "length_overflow"},
      {MF_UNEQUAL_LENGTHS, 21, "unequal_lengths"},
      {MF_TRUNCATED, 22, "truncated"},
      {MF_TRAILING_BYTES, 23, "trailing_bytes"},
      {MF_WRONG_MODEL, 24, "wrong_model"},
      {MF_WRONG_NUMERICS, 25, "wrong_numerics"},
      {MF_BAD_CHECKSUM, 26, "bad_checksum"},
      {MF_INTERNAL, 99, "internal"},
  };
  const size_t count = sizeof statuses / sizeof statuses[0];
  for (size_t i = 0; i < count; ++i) {
    EXPECT((int)statuses[i].status == statuses[i].number);
    EXPECT(strcmp(mf_status_name((mf_status)statuses[i].number), statuses[i].name) == 0);
  }
  size_t named = 0;
  for (int number = 0; number < 128; ++number)
    named += strcmp(mf_status_name((mf_status)number), "unknown") != 0;
  EXPECT(named == count);
}

static void numbers_have_names(void) {
  EXPECT(strcmp(mf_version(), "0.1.0") == 0);
  EXPECT(strcmp(mf_step_point_name(MF_EMBEDDING), "embedding") == 0);
  EXPECT(strcmp(mf_step_point_name(MF_FINAL_NORM), "final_norm") == 0);
  EXPECT(strcmp(mf_step_point_name((mf_step_point)15), "unknown") == 0);
}

static void an_engine_that_cannot_be_opened_says_why(void) {
  mf_engine_options options = engine_options(qwen);
  mf_engine* engine = (mf_engine*)&options; /* anything but NULL */
  EXPECT_STATUS(mf_engine_open(NULL, &engine, &why), MF_INVALID_ARGUMENT, "options is NULL");
  EXPECT(engine == NULL);
  EXPECT_STATUS(mf_engine_open(&options, NULL, &why), MF_INVALID_ARGUMENT, "engine is NULL");
  EXPECT(mf_engine_open(&options, NULL, NULL) == MF_INVALID_ARGUMENT);
  options.struct_size = 4;
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "struct_size");
  options = engine_options(NULL);
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "packed_model is NULL");
  options = engine_options(in_scratch("nowhere"));
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_NOT_FOUND, "nowhere");
  options = engine_options(qwen);
  options.isa = "abacus";
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "abacus");
  options = engine_options(qwen);
  options.experts_per_token = 1000;
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_INVALID_ARGUMENT, "1000");
  options = engine_options(qwen);
  options.usable_memory_bytes = 1;
  EXPECT_STATUS(mf_engine_open(&options, &engine, &why), MF_OUT_OF_MEMORY, NULL);
  EXPECT(engine == NULL);

  char long_path[2000]; /* a message longer than an mf_message is cut */
  memset(long_path, 'x', sizeof long_path - 1);
  long_path[sizeof long_path - 1] = 0;
  options = engine_options(long_path);
  EXPECT(mf_engine_open(&options, &engine, &why) != MF_OK && strlen(why.text) == sizeof why.text - 1);
}

/* A possible later version of moeflux.h. */
static void a_newer_caller_is_understood_unless_it_asks_for_news(void) {
  struct {
    mf_engine_options known;
    uint64_t news;
  } later;
  memset(&later, 0, sizeof later);
  later.known = engine_options(qwen);
  later.known.struct_size = sizeof later;
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&later.known, &engine, &why));
  mf_engine_close(engine);
  later.news = 1;
  EXPECT_STATUS(mf_engine_open(&later.known, &engine, &why), MF_UNSUPPORTED, "mf_engine_options");
  EXPECT(engine == NULL);
}

static void an_engine_says_what_it_is(void) {
  mf_engine_options options = engine_options(deepseek);
  options.isa = "scalar";
  options.context = 100;
  options.step_rows = 16;
  options.experts_per_token = 2;
  options.kv_budget_bytes = 1 << 26;
  options.usable_memory_bytes = (uint64_t)1 << 33;
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  mf_engine_info info;
  memset(&info, 0, sizeof info);
  EXPECT_STATUS(mf_engine_get_info(engine, &info, &why), MF_INVALID_ARGUMENT, "struct_size");
  info.struct_size = sizeof info;
  EXPECT_STATUS(mf_engine_get_info(NULL, &info, &why), MF_INVALID_ARGUMENT, "engine");
  EXPECT_STATUS(mf_engine_get_info(engine, NULL, &why), MF_INVALID_ARGUMENT, "info");
  EXPECT_OK(mf_engine_get_info(engine, &info, &why));
  EXPECT(info.struct_size == sizeof info && info.vocabulary == 512 && info.context == 100);
  EXPECT(info.max_positions == 4096 && info.layers == 4 && info.dim == 128 && info.experts_per_token == 2);
  EXPECT(info.step_rows == 16 && info.threads == 1 && info.end_tokens == 1);
  EXPECT(strcmp(info.isa, "scalar") == 0 && strcmp(info.family, "deepseek_v3") == 0);
  EXPECT(info.expert_records > 0 && info.expert_slots == info.expert_records && strlen(info.drive) > 0);
  EXPECT(mf_engine_end_token(engine, 0) == 511 && mf_engine_end_token(engine, 1) == -1);
  EXPECT(mf_engine_end_token(NULL, 0) == -1);

  /* Longer than a step, then longer than the context. */
  mf_session* const session = open_session(engine);
  EXPECT_OK(mf_session_extend(session, ids, kTokens, NULL, NULL, &why));
  EXPECT_OK(mf_session_extend(session, ids, kTokens, NULL, NULL, &why));
  EXPECT_STATUS(mf_session_extend(session, ids, kTokens, NULL, NULL, &why), MF_CONTEXT_FULL, "100");
  EXPECT_STATUS(mf_session_extend(session, ids, (size_t)-1, NULL, NULL, &why), MF_CONTEXT_FULL, "100");
  EXPECT(mf_session_position(session) == 2 * kTokens);
  mf_engine_close(engine);
  mf_session_close(session); /* after its engine */
  mf_engine_close(NULL);
}

static void no_session_is_no_accident(mf_engine* engine) {
  mf_session* none = NULL;
  mf_segment segment;
  memset(&segment, 0, sizeof segment);
  char byte = 0;
  size_t written = 1;
  EXPECT_STATUS(mf_session_open(NULL, NULL, &none, &why), MF_INVALID_ARGUMENT, "engine");
  EXPECT_STATUS(mf_session_open(engine, NULL, NULL, &why), MF_INVALID_ARGUMENT, "session");
  EXPECT_STATUS(mf_session_extend(NULL, ids, 1, NULL, NULL, &why), MF_INVALID_ARGUMENT, "session is NULL");
  EXPECT(mf_session_extend(NULL, ids, 1, NULL, NULL, NULL) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_fork(NULL, &none, &why) == MF_INVALID_ARGUMENT && none == NULL);
  EXPECT(mf_session_clear(NULL, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_checkpoint(NULL, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_restore_to(NULL, 0, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_rewind(NULL, 0, NULL, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_rewind_strict(NULL, 0, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_set_max_checkpoints(NULL, 1, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_save(NULL, &byte, 1, &written, &why) == MF_INVALID_ARGUMENT && written == 0);
  EXPECT(mf_session_load(NULL, &byte, 1, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_save_file(NULL, "x", &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_load_file(NULL, "x", &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_session_position(NULL) == 0 && mf_session_checkpoint_count(NULL) == 0);
  EXPECT(mf_session_saved_bytes(NULL) == 0);
  EXPECT(mf_engine_step(NULL, &segment, 1, NULL, &why) == MF_INVALID_ARGUMENT);
  EXPECT_STATUS(mf_engine_step(engine, &segment, 1, NULL, &why), MF_INVALID_ARGUMENT, "session is NULL");
  EXPECT_STATUS(mf_engine_step(engine, NULL, 1, NULL, &why), MF_INVALID_ARGUMENT, "segments is NULL");
  EXPECT_STATUS(mf_engine_step(engine, NULL, 0, NULL, &why), MF_INVALID_ARGUMENT, "at least one segment");
  mf_session_close(NULL);
}

typedef struct seen {
  uint32_t points[9];
  uint32_t routes;
  uint32_t rows_seen;
  float last_residual;
} seen;

static void look(void* user, mf_step_point point, uint32_t layer, const float* values, uint32_t rows,
                 uint32_t cols) {
  seen* const all = (seen*)user;
  all->points[point] += 1;
  all->rows_seen = rows;
  if (point == MF_RESIDUAL) all->last_residual = values[(size_t)rows * cols - 1] + (float)(layer * 0);
}

static void look_at_routes(void* user, uint32_t layer, const uint32_t* experts, const float* weights,
                           uint32_t rows, uint32_t experts_per_token) {
  seen* const all = (seen*)user;
  (void)layer;
  for (uint32_t i = 0; i < rows * experts_per_token; ++i) {
    EXPECT(weights[i] >= 0 && experts[i] < 65536);
    if (i % experts_per_token > 0) EXPECT(experts[i] > experts[i - 1]);
  }
  all->routes += rows;
}

static void an_observer_sees_the_step_and_changes_nothing(mf_engine* engine, uint32_t layers) {
  float *const plain = new_logits(1), *const observed = new_logits(1);
  seen all;
  memset(&all, 0, sizeof all);
  mf_step_options options = step_options();
  options.observer = look;
  options.route_observer = look_at_routes;
  options.user = &all;
  mf_session *const a = open_session(engine), *const b = open_session(engine);
  EXPECT_OK(mf_session_extend(a, ids, kTokens, plain, NULL, &why));
  EXPECT_OK(mf_session_extend(b, ids, kTokens, observed, &options, &why));
  EXPECT(same(plain, observed, 512));
  EXPECT(all.points[MF_EMBEDDING] == 1 && all.points[MF_RESIDUAL] == layers &&
         all.points[MF_FINAL_NORM] == 1);
  EXPECT(all.points[MF_NORMED] == layers && all.points[MF_MIXED] == layers &&
         all.points[MF_MLP_NORMED] == layers);
  EXPECT(all.routes == kTokens * all.points[MF_ROUTER_LOGITS] && all.routes > 0);
  EXPECT(all.last_residual != 0 &&
         all.rows_seen == 1); /* at the last point only the row whose logits are wanted */

  options.observer = NULL; /* each observer alone */
  EXPECT_OK(mf_session_extend(a, ids, 1, plain, &options, &why));
  options.observer = look;
  options.route_observer = NULL;
  EXPECT_OK(mf_session_extend(b, ids, 1, observed, &options, &why));
  EXPECT(same(plain, observed, 512));
  options.struct_size = 1;
  EXPECT_STATUS(mf_session_extend(b, ids, 1, NULL, &options, &why), MF_INVALID_ARGUMENT, "mf_step_options");
  EXPECT(mf_session_position(a) == kTokens + 1 && mf_session_position(b) == kTokens + 1);
  mf_session_close(a);
  mf_session_close(b);
  free(plain);
  free(observed);
}

static void a_cancelled_step_has_not_happened(mf_engine* engine) {
  mf_cancel* const cancel = mf_cancel_new();
  EXPECT(cancel != NULL);
  mf_step_options options = step_options();
  options.cancel = cancel;
  mf_session* const session = open_session(engine);
  mf_cancel_request(cancel);
  EXPECT_STATUS(mf_session_extend(session, ids, kTokens, NULL, &options, &why), MF_CANCELLED, NULL);
  EXPECT(mf_session_position(session) == 0);
  mf_cancel_reset(cancel);
  EXPECT_OK(mf_session_extend(session, ids, kTokens, NULL, &options, &why));
  EXPECT(mf_session_position(session) == kTokens);
  mf_session_close(session);
  mf_cancel_free(cancel);
  mf_cancel_free(NULL);
  mf_cancel_request(NULL);
  mf_cancel_reset(NULL);
}

static void a_batch_gives_each_session_what_it_gets_alone(mf_engine* engine, mf_engine* another) {
  float *const alone = new_logits(kTokens), *const all = new_logits(kTokens), *const last = new_logits(1);
  mf_session *const a = open_session(engine), *const b = open_session(engine),
                    *const c = open_session(engine);
  mf_session* const stranger = open_session(another);
  for (int i = 0; i < kTokens; ++i) EXPECT_OK(mf_session_extend(a, ids + i, 1, alone + i * 512, NULL, &why));
  mf_segment segments[2];
  memset(segments, 0, sizeof segments);
  segments[0].session = b;
  segments[0].tokens = ids;
  segments[0].count = kTokens;
  segments[0].logits = MF_LOGITS_ALL;
  segments[0].out = all;
  segments[1] = segments[0];
  EXPECT_STATUS(mf_engine_step(engine, segments, 2, NULL, &why), MF_INVALID_ARGUMENT, "only once");
  segments[1].session = stranger;
  EXPECT_STATUS(mf_engine_step(engine, segments, 2, NULL, &why), MF_INVALID_ARGUMENT, "another engine");
  segments[1].session = c;
  segments[1].count = 7;
  segments[1].logits = (mf_wanted_logits)3;
  EXPECT_STATUS(mf_engine_step(engine, segments, 2, NULL, &why), MF_INVALID_ARGUMENT, "MF_LOGITS");
  segments[1].logits = MF_LOGITS_LAST;
  segments[1].out = NULL;
  EXPECT_STATUS(mf_engine_step(engine, segments, 2, NULL, &why), MF_INVALID_ARGUMENT, "out is NULL");
  segments[1].tokens = NULL;
  EXPECT_STATUS(mf_engine_step(engine, segments, 2, NULL, &why), MF_INVALID_ARGUMENT, "tokens is NULL");
  segments[1].tokens = ids;
  segments[1].out = last;
  EXPECT(mf_session_position(b) == 0 && mf_session_position(c) == 0);
  EXPECT_OK(mf_engine_step(engine, segments, 2, NULL, &why));
  EXPECT(same(alone, all, kTokens * 512) && same(alone + 6 * 512, last, 512));
  segments[1].logits = MF_LOGITS_NONE;
  segments[1].out = NULL;
  EXPECT_OK(mf_engine_step(engine, segments + 1, 1, NULL, &why));
  EXPECT(mf_session_position(b) == kTokens && mf_session_position(c) == 14);
  mf_session_close(a);
  mf_session_close(b);
  mf_session_close(c);
  mf_session_close(stranger);
  free(alone);
  free(all);
  free(last);
}

static void a_session_goes_back_in_every_way(mf_engine* engine, int recurrent) {
  float *const expected = new_logits(1), *const again = new_logits(1);
  mf_session_options options;
  memset(&options, 0, sizeof options);
  mf_session* session = NULL;
  EXPECT_STATUS(mf_session_open(engine, &options, &session, &why), MF_INVALID_ARGUMENT, "mf_session_options");
  EXPECT(session == NULL);
  options.struct_size = sizeof options;
  options.max_checkpoints = 2;
  options.checkpoint_budget_bytes = 1 << 30;
  EXPECT_OK(mf_session_open(engine, &options, &session, &why));
  EXPECT_OK(mf_session_extend(session, ids, 10, NULL, NULL, &why));
  EXPECT_OK(mf_session_checkpoint(session, &why));
  EXPECT_OK(mf_session_extend(session, ids + 10, 10, NULL, NULL, &why));
  EXPECT_OK(mf_session_checkpoint(session, &why));
  EXPECT_OK(mf_session_extend(session, ids + 20, 20, expected, NULL, &why));
  EXPECT(mf_session_checkpoint_count(session) == 2);

  EXPECT_STATUS(mf_session_restore_to(session, 15, &why), MF_NO_CHECKPOINT, "15");
  EXPECT_STATUS(mf_session_rewind(session, 41, NULL, &why), MF_INVALID_ARGUMENT, "41");
  EXPECT_STATUS(mf_session_rewind_strict(session, 41, &why), MF_INVALID_ARGUMENT, "41");
  EXPECT_OK(mf_session_rewind(session, 25, NULL, &why));
  EXPECT(mf_session_position(session) == 25 && mf_session_checkpoint_count(session) == 2);
  EXPECT_OK(mf_session_extend(session, ids + 25, 15, again, NULL, &why));
  EXPECT(same(expected, again, 512));
  EXPECT_OK(mf_session_restore_to(session, 10, &why));
  EXPECT(mf_session_checkpoint_count(session) == 1);
  EXPECT_OK(mf_session_extend(session, ids + 10, 30, again, NULL, &why));
  EXPECT(same(expected, again, 512));
  if (recurrent) {
    EXPECT_STATUS(mf_session_rewind_strict(session, 30, &why), MF_CANNOT_TRUNCATE_RECURRENT, "30");
    EXPECT(mf_session_position(session) == kTokens);
  } else {
    EXPECT_OK(mf_session_rewind_strict(session, 30, &why));
    EXPECT_OK(mf_session_extend(session, ids + 30, 10, again, NULL, &why));
    EXPECT(same(expected, again, 512));
  }
  EXPECT_OK(mf_session_set_max_checkpoints(session, 1, &why));
  EXPECT_OK(mf_session_checkpoint(session, &why));
  EXPECT(mf_session_checkpoint_count(session) == 1);
  EXPECT_OK(mf_session_clear(session, &why));
  EXPECT(mf_session_position(session) == 0 && mf_session_checkpoint_count(session) == 0);
  mf_session_close(session);
  free(expected);
  free(again);
}

static void a_session_is_copied_and_saved(mf_engine* engine, mf_engine* another) {
  float *const expected = new_logits(1), *const again = new_logits(1);
  mf_session *const session = open_session(engine), *const stranger = open_session(another);
  mf_session* fork = NULL;
  again[0] = 7;
  EXPECT_OK(mf_session_extend(session, NULL, 0, again, NULL, &why));
  EXPECT(again[0] == 7);
  EXPECT_STATUS(mf_session_extend(session, NULL, 1, NULL, NULL, &why), MF_INVALID_ARGUMENT, "tokens is NULL");
  const uint32_t none = 512;
  EXPECT_STATUS(mf_session_extend(session, &none, 1, NULL, NULL, &why), MF_TOKEN_OUT_OF_RANGE, "512");
  EXPECT_OK(mf_session_extend(session, ids, 20, NULL, NULL, &why));
  EXPECT_STATUS(mf_session_fork(session, NULL, &why), MF_INVALID_ARGUMENT, "other is NULL");
  EXPECT_OK(mf_session_fork(session, &fork, &why));
  EXPECT(mf_session_position(fork) == 20);

  const size_t size = (size_t)mf_session_saved_bytes(session);
  char* const bytes = (char*)malloc(size);
  EXPECT(bytes != NULL);
  size_t written = 1;
  EXPECT_STATUS(mf_session_save(session, bytes, size - 1, &written, &why), MF_BUFFER_TOO_SMALL, NULL);
  EXPECT(written == 0);
  EXPECT_STATUS(mf_session_save(session, NULL, size, NULL, &why), MF_INVALID_ARGUMENT, "buffer is NULL");
  EXPECT_OK(mf_session_save(session, bytes, size, &written, &why));
  EXPECT(written == size);
  char path[4200];
  snprintf(path, sizeof path, "%s", in_scratch("session.snapshot"));
  EXPECT_STATUS(mf_session_save_file(session, NULL, &why), MF_INVALID_ARGUMENT, "path is NULL");
  EXPECT_STATUS(mf_session_save_file(session, in_scratch("nowhere/s"), &why), MF_NOT_FOUND, "nowhere");
  EXPECT_OK(mf_session_save_file(session, path, &why));

  EXPECT_OK(mf_session_extend(session, ids + 20, 20, expected, NULL, &why));
  EXPECT_OK(mf_session_extend(fork, ids + 20, 20, again, NULL, &why));
  EXPECT(same(expected, again, 512));

  EXPECT_STATUS(mf_session_load(fork, NULL, size, &why), MF_INVALID_ARGUMENT, "bytes is NULL");
  EXPECT_STATUS(mf_session_load(fork, bytes, 3, &why), MF_BUFFER_TOO_SMALL, NULL);
  bytes[0] = (char)(bytes[0] ^ 1);
  EXPECT_STATUS(mf_session_load(fork, bytes, size, &why), MF_BAD_MAGIC, NULL);
  bytes[0] = (char)(bytes[0] ^ 1);
  EXPECT(mf_session_load(stranger, bytes, size, &why) != MF_OK && mf_session_position(stranger) == 0);
  EXPECT_STATUS(mf_session_load_file(fork, NULL, &why), MF_INVALID_ARGUMENT, "path is NULL");
  EXPECT_STATUS(mf_session_load_file(fork, in_scratch("nowhere"), &why), MF_NOT_FOUND, "nowhere");
  EXPECT(mf_session_position(fork) == kTokens);
  for (int from_file = 0; from_file < 2; ++from_file) {
    EXPECT_OK(from_file ? mf_session_load_file(fork, path, &why) : mf_session_load(fork, bytes, size, &why));
    EXPECT(mf_session_position(fork) == 20);
    EXPECT_OK(mf_session_extend(fork, ids + 20, 20, again, NULL, &why));
    EXPECT(same(expected, again, 512));
  }
  mf_session_close(session);
  mf_session_close(fork);
  mf_session_close(stranger);
  free(bytes);
  free(expected);
  free(again);
}

typedef struct worker {
  pthread_t thread;
  mf_engine* engine;
  int number;
  float logits[512];
  mf_status status;
} worker;

/* Each thread splits the prompt differently. */
static void* extend_in_pieces(void* argument) {
  worker* const self = (worker*)argument;
  mf_session* session = NULL;
  self->status = mf_session_open(self->engine, NULL, &session, NULL);
  for (size_t at = 0; at < kTokens && self->status == MF_OK;) {
    size_t some = (size_t)self->number + 1;
    if (some > kTokens - at) some = kTokens - at;
    self->status = mf_session_extend(session, ids + at, some, self->logits, NULL, NULL);
    at += some;
  }
  mf_session_close(session);
  return NULL;
}

static void eight_threads_get_the_logits_of_one(const char* model) {
  static worker workers[kThreads];
  mf_engine_options options = engine_options(model);
  options.threads = 2;
  mf_engine* engine = NULL;
  EXPECT_OK(mf_engine_open(&options, &engine, &why));
  float* const alone = new_logits(1);
  mf_session* const session = open_session(engine);
  EXPECT_OK(mf_session_extend(session, ids, kTokens, alone, NULL, &why));
  mf_session_close(session);
  for (int i = 0; i < kThreads; ++i) {
    workers[i].engine = engine;
    workers[i].number = i;
    EXPECT(pthread_create(&workers[i].thread, NULL, extend_in_pieces, &workers[i]) == 0);
  }
  for (int i = 0; i < kThreads; ++i) {
    EXPECT(pthread_join(workers[i].thread, NULL) == 0);
    EXPECT(workers[i].status == MF_OK && same(alone, workers[i].logits, 512));
  }
  mf_engine_close(engine);
  free(alone);
}

int main(int count, char** arguments) {
  if (count != 7) {
    fprintf(stderr, "usage: use_everything QWEN DEEPSEEK SCRATCH ORIGINAL ORIGINAL_2BIT STALE\n");
    return 2;
  }
  qwen = arguments[1];
  deepseek = arguments[2];
  scratch = arguments[3];
  original = arguments[4];
  original_2bit = arguments[5];
  stale = arguments[6];
  for (int i = 0; i < kTokens; ++i) {
    tokens[i] = (i * 37 + 11) % 509;
    ids[i] = (uint32_t)tokens[i];
  }
  a_model_that_cannot_be_opened_says_why();
  no_context_is_no_accident();
  two_models_live_beside_each_other();
  more_experts_than_the_model_has_are_the_models_own();
  the_originals_artifacts_open_directly();
  two_bit_experts_open_when_they_are_all_there_is();
  a_packed_model_of_something_else_is_refused();

  statuses_keep_their_numbers_and_names();
  numbers_have_names();
  an_engine_that_cannot_be_opened_says_why();
  a_newer_caller_is_understood_unless_it_asks_for_news();
  an_engine_says_what_it_is();
  mf_engine *const with_recurrence = open_engine(qwen), *const without = open_engine(deepseek);
  no_session_is_no_accident(with_recurrence);
  an_observer_sees_the_step_and_changes_nothing(with_recurrence, 8);
  an_observer_sees_the_step_and_changes_nothing(without, 4);
  a_cancelled_step_has_not_happened(with_recurrence);
  a_batch_gives_each_session_what_it_gets_alone(with_recurrence, without);
  a_batch_gives_each_session_what_it_gets_alone(without, with_recurrence);
  a_session_goes_back_in_every_way(with_recurrence, 1);
  a_session_goes_back_in_every_way(without, 0);
  a_session_is_copied_and_saved(with_recurrence, without);
  a_session_is_copied_and_saved(without, with_recurrence);
  eight_threads_get_the_logits_of_one(qwen);
  eight_threads_get_the_logits_of_one(deepseek);
  mf_engine_close(with_recurrence);
  mf_engine_close(without);
  printf("every function of moeflux.h was called\n");
  return 0;
}
