/* use_original QWEN DEEPSEEK SCRATCH ORIGINAL ORIGINAL_2BIT ORIGINAL_BOTH STALE: calls the functions of the
 * original and those beside them, in success and in failure.
 *
 * QWEN and DEEPSEEK are packed models with and without recurrent layers, SCRATCH a folder to write to.
 * ORIGINAL holds QWEN as the original's artifacts, in artifacts/ and root/; ORIGINAL_2BIT the same with 2-bit
 * experts, all in one folder; ORIGINAL_BOTH has both kinds of experts in one folder; STALE is like
 * ORIGINAL_2BIT, with a packed model that is not its own. Compiled as C11 and as C++20. Exits with 0, or
 * with 1 after a line that says what was expected. */

#include <moeflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expectations.h"

enum { kTokens = 40 };

static const char *qwen, *deepseek, *scratch, *original, *original_2bit, *original_both, *stale;
static int32_t tokens[kTokens];

static const char* in_scratch(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  return path;
}

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
  EXPECT(mf_eval_prompt(ctx, tokens, 12, 0, 0, again) == 0);
  const size_t size_at_12 = mf_state_size(ctx);
  EXPECT(mf_checkpoint(ctx, 12) == 0 && mf_state_size(ctx) == size_at_12 + 4);
  EXPECT(mf_eval_prompt(ctx, tokens + 12, 8, 12, 0, again) == 0);
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

  mf_memory_clear(ctx);
  EXPECT(mf_state_load(ctx, state, size) == 0 && mf_memory_seq_pos_max(ctx, 0) == 20);
  EXPECT(mf_checkpoint_count(ctx) == 1 && mf_restore_to(ctx, 11) == MF_NO_CHECKPOINT);
  EXPECT(mf_restore_to(ctx, 12) == 0 && mf_eval_prompt(ctx, tokens + 12, 8, 12, 0, again) == 0);
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

static mf_init_options init_options(const char* weights, const mf_engine_options* engine) {
  mf_init_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.weights = weights;
  options.engine = engine;
  return options;
}

static mf_ctx* open_with(const mf_init_options options) {
  mf_ctx* ctx = NULL;
  EXPECT_OK(mf_init_model_with(&options, &ctx, &why));
  EXPECT(ctx != NULL);
  return ctx;
}

static void a_context_opens_with_all_options_of_an_engine(void) {
  float *const expected = new_logits(1), *const found = new_logits(1);
  mf_ctx* ctx = mf_init_model(qwen, NULL, NULL, NULL, 0, 0);
  EXPECT(ctx != NULL && mf_eval_prompt(ctx, tokens, kTokens, 0, 0, expected) == 0);
  const size_t whole_state = mf_state_size(ctx);
  mf_free_model(ctx);

  ctx = open_with(init_options(qwen, NULL));
  EXPECT(mf_n_ctx(ctx) == 4096);
  EXPECT(mf_eval_prompt(ctx, tokens, kTokens, 0, 0, found) == 0 && same(expected, found, 512));
  mf_free_model(ctx);

  mf_engine_options engine = engine_options(NULL);
  engine.context = 100;
  engine.step_rows = 3;
  engine.expert_cache_bytes = 1 << 20;
  engine.io = "pread";
  engine.prefetch = MF_PREFETCH_OFF;
  ctx = open_with(init_options(qwen, &engine));
  EXPECT(mf_n_ctx(ctx) == 100);
  EXPECT(mf_eval_prompt(ctx, tokens, kTokens, 0, 0, found) == 0 && same(expected, found, 512));
  mf_free_model(ctx);

  engine = engine_options(NULL);
  engine.precision = "fast";
  ctx = open_with(init_options(qwen, &engine));
  EXPECT(mf_eval_prompt(ctx, tokens, kTokens, 0, 0, found) == 0 && !same(expected, found, 512));
  mf_free_model(ctx);

  engine = engine_options(NULL);
  engine.kv_numbers = "int8";
  engine.experts_per_token = 1;
  ctx = open_with(init_options(qwen, &engine));
  EXPECT(mf_eval_prompt(ctx, tokens, kTokens, 0, 0, found) == 0 && !same(expected, found, 512));
  EXPECT(mf_state_size(ctx) < whole_state);
  mf_free_model(ctx);
  free(expected);
  free(found);
}

static void count_layers(void* user, mf_step_point point, uint32_t layer, const float* values, uint32_t rows,
                         uint32_t cols) {
  (void)layer, (void)values, (void)rows, (void)cols;
  if (point == MF_RESIDUAL) ++*(uint32_t*)user;
}

static void a_context_has_an_engine_and_a_session(void) {
  EXPECT(mf_ctx_engine(NULL) == NULL && mf_ctx_session(NULL) == NULL);
  mf_ctx* const ctx = mf_init_model(qwen, NULL, NULL, NULL, 0, 0);
  EXPECT(ctx != NULL && mf_ctx_session(ctx) == mf_ctx_session(ctx));
  mf_engine_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  EXPECT_OK(mf_engine_get_info(mf_ctx_engine(ctx), &info, &why));
  EXPECT(info.vocabulary == mf_n_vocab(ctx) && info.context == mf_n_ctx(ctx));

  float *const logits = new_logits(1), *const again = new_logits(1);
  EXPECT(mf_eval_prompt(ctx, tokens, 10, 0, 0, logits) == 0);
  uint32_t layers = 0;
  mf_step_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.observer = count_layers;
  options.user = &layers;
  const uint32_t next = (uint32_t)tokens[10];
  EXPECT_OK(mf_session_extend(mf_ctx_session(ctx), &next, 1, logits, &options, &why));
  EXPECT(layers == info.layers && mf_memory_seq_pos_max(ctx, 0) == 11);
  mf_session* fork = NULL;
  EXPECT_OK(mf_session_fork(mf_ctx_session(ctx), &fork, &why));
  mf_memory_clear(ctx);
  EXPECT(mf_eval_prompt(ctx, tokens, 11, 0, 0, again) == 0 && same(logits, again, 512));
  mf_free_model(ctx);
  EXPECT(mf_session_position(fork) == 11); /* keeps the model alive */
  mf_session_close(fork);
  free(logits);
  free(again);
}

static void options_of_a_context_are_checked(void) {
  mf_engine_options engine = engine_options(NULL);
  mf_init_options options = init_options(qwen, &engine);
  mf_ctx* ctx = (mf_ctx*)&engine;
  EXPECT_STATUS(mf_init_model_with(NULL, &ctx, &why), MF_INVALID_ARGUMENT, "options is NULL");
  EXPECT(ctx == NULL);
  EXPECT_STATUS(mf_init_model_with(&options, NULL, &why), MF_INVALID_ARGUMENT, "ctx is NULL");
  options.struct_size = 4;
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_INVALID_ARGUMENT, "mf_init_options");
  EXPECT(strcmp(mf_last_error(NULL), why.text) == 0);
  options = init_options(NULL, &engine);
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_INVALID_ARGUMENT, "weights is NULL");
  options = init_options(in_scratch("nowhere"), NULL);
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, NULL), MF_NOT_FOUND, NULL);
  EXPECT(strstr(mf_last_error(NULL), "nowhere") != NULL);
  options = init_options(qwen, &engine);
  engine.packed_model = deepseek;
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_INVALID_ARGUMENT, "packed_model");
  engine = engine_options(NULL);
  engine.precision = "approximate";
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_INVALID_ARGUMENT, "precision|approximate");
  engine = engine_options(NULL);
  engine.experts_per_token = 1000;
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_INVALID_ARGUMENT, "1000");
  engine = engine_options(NULL);
  engine.struct_size = 8;
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_INVALID_ARGUMENT, "mf_engine_options");
}

typedef struct {
  int calls, stop_at; /* 0: never */
  uint64_t done, total;
} seen_progress;

static int watch(void* user, uint64_t done_bytes, uint64_t total_bytes) {
  seen_progress* const seen = (seen_progress*)user;
  EXPECT(done_bytes > seen->done && done_bytes <= total_bytes);
  seen->done = done_bytes;
  seen->total = total_bytes;
  return ++seen->calls == seen->stop_at;
}

/* The 2-bit experts of ORIGINAL_BOTH, which also has 4-bit ones. */
static void packing_the_originals_reports_and_can_be_cancelled(void) {
  char weights[4200], manifest[4200], packed[4200];
  snprintf(weights, sizeof weights, "%s/model_weights.bin", original_both);
  snprintf(manifest, sizeof manifest, "%s/model_weights.json", original_both);
  snprintf(packed, sizeof packed, "%s/moeflux_packed_2bit", original_both);
  seen_progress seen = {0, 3, 0, 0};
  mf_init_options options = init_options(weights, NULL);
  options.manifest = manifest;
  options.experts_dir = original_both;
  options.use_2bit = 1;
  options.progress = watch;
  options.user = &seen;
  mf_ctx* ctx = NULL;
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_CANCELLED, "cancelled");
  EXPECT(ctx == NULL && seen.calls >= 3);
  EXPECT(mf_init_model(packed, NULL, NULL, NULL, 0, 0) == NULL); /* unfinished */

  options.cancel = mf_cancel_new();
  mf_cancel_request((mf_cancel*)options.cancel);
  EXPECT_STATUS(mf_init_model_with(&options, &ctx, &why), MF_CANCELLED, "cancelled");
  mf_cancel_free((mf_cancel*)options.cancel);
  options.cancel = NULL;

  memset(&seen, 0, sizeof seen);
  float *const two = new_logits(1), *const four = new_logits(1), *const expected = new_logits(1);
  ctx = open_with(options);
  EXPECT(seen.calls > 0 && seen.done == seen.total);
  EXPECT(mf_eval_prompt(ctx, tokens, kTokens, 0, 0, two) == 0);
  mf_free_model(ctx);
  memset(&seen, 0, sizeof seen);
  mf_free_model(open_with(options)); /* packed already */
  EXPECT(seen.calls == 0);
  ctx = open_flat_original(original_2bit, 0);
  EXPECT(ctx != NULL && mf_eval_prompt(ctx, tokens, kTokens, 0, 0, expected) == 0);
  EXPECT(same(two, expected, 512));
  mf_free_model(ctx);

  options.use_2bit = 0;
  ctx = open_with(options);
  EXPECT(seen.calls > 0 && mf_eval_prompt(ctx, tokens, kTokens, 0, 0, four) == 0);
  mf_free_model(ctx);
  ctx = mf_init_model(qwen, NULL, NULL, NULL, 0, 0);
  EXPECT(ctx != NULL && mf_eval_prompt(ctx, tokens, kTokens, 0, 0, expected) == 0);
  EXPECT(same(four, expected, 512) && !same(four, two, 512));
  mf_free_model(ctx);
  free(two);
  free(four);
  free(expected);
}

int main(int count, char** arguments) {
  if (count != 8) {
    fprintf(stderr, "usage: use_original QWEN DEEPSEEK SCRATCH ORIGINAL ORIGINAL_2BIT ORIGINAL_BOTH STALE\n");
    return 2;
  }
  qwen = arguments[1];
  deepseek = arguments[2];
  scratch = arguments[3];
  original = arguments[4];
  original_2bit = arguments[5];
  original_both = arguments[6];
  stale = arguments[7];
  for (int i = 0; i < kTokens; ++i) tokens[i] = (i * 37 + 11) % 509;

  a_model_that_cannot_be_opened_says_why();
  no_context_is_no_accident();
  two_models_live_beside_each_other();
  more_experts_than_the_model_has_are_the_models_own();
  the_originals_artifacts_open_directly();
  two_bit_experts_open_when_they_are_all_there_is();
  a_packed_model_of_something_else_is_refused();
  a_context_opens_with_all_options_of_an_engine();
  options_of_a_context_are_checked();
  a_context_has_an_engine_and_a_session();
  packing_the_originals_reports_and_can_be_cancelled();
  printf("every function of the original was called\n");
  return 0;
}
