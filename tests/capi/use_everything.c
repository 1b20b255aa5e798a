/* use_everything QWEN DEEPSEEK SCRATCH: calls every function of moeflux.h that opens or takes an engine or a
 * session, in success and in failure. use_original.c calls the functions of the original.
 *
 * QWEN and DEEPSEEK are packed models with and without recurrent layers, SCRATCH a folder to write to.
 * Compiled as C11 and as C++20. Exits with 0, or with 1 after a line that says what was expected. */

#include <moeflux.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expectations.h"

enum { kTokens = 40, kThreads = 8 };

static const char *qwen, *deepseek, *scratch;
static uint32_t ids[kTokens];

static const char* in_scratch(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  return path;
}

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
  EXPECT(strcmp(mf_step_point_name(MF_SHARED_GATE), "shared_gate") == 0);
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
  mf_outcome outcome;
  EXPECT_STATUS(mf_engine_step_each(NULL, &segment, 1, NULL, NULL, &outcome, &why), MF_INVALID_ARGUMENT,
                "engine is NULL");
  EXPECT_STATUS(mf_engine_step_each(engine, &segment, 1, NULL, NULL, NULL, &why), MF_INVALID_ARGUMENT,
                "outcomes is NULL");
  EXPECT_STATUS(mf_engine_step_each(engine, NULL, 0, NULL, NULL, NULL, &why), MF_INVALID_ARGUMENT,
                "at least one segment");
  mf_session_close(NULL);
}

typedef struct seen {
  uint32_t points[10];
  uint32_t routes;
  uint32_t rows_seen, gated_rows;
  float last_residual;
} seen;

static void look(void* user, mf_step_point point, uint32_t layer, const float* values, uint32_t rows,
                 uint32_t cols) {
  seen* const all = (seen*)user;
  all->points[point] += 1;
  all->rows_seen = rows;
  if (point == MF_SHARED_GATE) EXPECT(cols == 1 && rows == all->gated_rows);
  if (point == MF_SHARED) all->gated_rows = rows;
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

/* `gated` layers have a shared expert with a gate. */
static void an_observer_sees_the_step_and_changes_nothing(mf_engine* engine, uint32_t layers,
                                                          uint32_t gated) {
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
  EXPECT(all.points[MF_SHARED] == all.points[MF_ROUTER_LOGITS] && all.points[MF_SHARED_GATE] == gated);
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

/* What a layer computed from one text, to run the layers after it on. */
typedef struct {
  uint32_t layer; /* replaced before this one; -1: none */
  uint32_t calls;
  uint32_t changed; /* calls that replaced */
  size_t count;     /* of floats in residual */
  float* residual;  /* the input of `layer` in the first run */
  float scale;
} replacement;

static void keep_the_input_of_the_layer(void* user, mf_step_point point, uint32_t layer, const float* values,
                                        uint32_t rows, uint32_t cols) {
  replacement* const kept = (replacement*)user;
  if (point != MF_RESIDUAL || layer + 1 != kept->layer) return;
  kept->count = (size_t)rows * cols;
  memcpy(kept->residual, values, kept->count * sizeof(float));
}

static int replace(void* user, uint32_t layer, float* values, uint32_t rows, uint32_t cols) {
  replacement* const kept = (replacement*)user;
  kept->calls += 1;
  if (layer != kept->layer) return 0;
  EXPECT((size_t)rows * cols == kept->count);
  kept->changed += 1;
  for (size_t i = 0; i < kept->count; ++i) values[i] = kept->residual[i] * kept->scale;
  return 1;
}

static void a_residual_can_be_replaced_before_a_layer(mf_engine* engine) {
  float *const expected = new_logits(1), *const found = new_logits(1);
  mf_engine_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  EXPECT_OK(mf_engine_get_info(engine, &info, &why));
  replacement kept;
  memset(&kept, 0, sizeof kept);
  kept.layer = info.layers - 1;
  kept.scale = 1;
  kept.residual = (float*)calloc((size_t)kTokens * info.dim, sizeof(float));
  mf_session *const a = open_session(engine), *const b = open_session(engine);
  mf_step_options options = step_options();
  options.user = &kept;
  options.observer = keep_the_input_of_the_layer;
  EXPECT_OK(mf_session_extend(a, ids, 16, expected, &options, &why)); /* one step */

  /* Another text, whose last layer runs on the first text's residual. */
  options.observer = NULL;
  options.replace_residual = replace;
  EXPECT_OK(mf_session_extend(b, ids + 16, 16, found, &options, &why));
  EXPECT(same(expected, found, 512));
  EXPECT(kept.calls == info.layers && kept.changed == 1);

  kept.scale = 2;
  EXPECT_OK(mf_session_clear(b, &why));
  EXPECT_OK(mf_session_extend(b, ids, 16, found, &options, &why));
  EXPECT(!same(expected, found, 512));

  /* A caller that was compiled before replace_residual existed. */
  options.struct_size = (uint32_t)offsetof(mf_step_options, replace_residual);
  EXPECT_OK(mf_session_clear(b, &why));
  EXPECT_OK(mf_session_extend(b, ids, 16, found, &options, &why));
  EXPECT(same(expected, found, 512));
  mf_session_close(a);
  mf_session_close(b);
  free(kept.residual);
  free(expected);
  free(found);
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

/* `a` to `c` are sessions of the engine. */
static void segments_fail_alone(mf_engine* engine, mf_session* a, mf_session* b, mf_session* c) {
  const uint32_t none = 512;
  float *const expected = new_logits(1), *const found = new_logits(1);
  EXPECT_OK(mf_session_clear(a, &why));
  EXPECT_OK(mf_session_clear(b, &why));
  EXPECT_OK(mf_session_extend(a, ids, 3, expected, NULL, &why));
  EXPECT_OK(mf_session_clear(a, &why));
  mf_segment segments[3];
  memset(segments, 0, sizeof segments);
  segments[0].session = a;
  segments[0].tokens = ids;
  segments[0].count = 3;
  segments[0].logits = MF_LOGITS_LAST;
  segments[0].out = found;
  segments[1].session = b;
  segments[1].tokens = &none;
  segments[1].count = 1;
  segments[2].session = c;
  segments[2].tokens = ids;
  segments[2].count = 2;
  mf_cancel* const cancel = mf_cancel_new();
  mf_cancel_request(cancel);
  const mf_cancel* const cancels[3] = {NULL, NULL, cancel};
  mf_outcome outcomes[3];
  EXPECT_OK(mf_engine_step_each(engine, segments, 3, cancels, NULL, outcomes, &why));
  EXPECT(outcomes[0].status == MF_OK && outcomes[0].why.text[0] == 0 && same(expected, found, 512));
  EXPECT(outcomes[1].status == MF_TOKEN_OUT_OF_RANGE && strstr(outcomes[1].why.text, "512") != NULL);
  EXPECT(outcomes[2].status == MF_CANCELLED && strstr(outcomes[2].why.text, "cancelled") != NULL);
  EXPECT(mf_session_position(a) == 3 && mf_session_position(b) == 0 && mf_session_position(c) == 14);
  EXPECT_STATUS(mf_engine_step(engine, segments, 3, NULL, &why), MF_TOKEN_OUT_OF_RANGE, "segment 1");
  EXPECT(mf_session_position(a) == 3 && mf_session_position(c) == 14);
  mf_cancel_free(cancel);
  free(expected);
  free(found);
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
  segments_fail_alone(engine, a, b, c);
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
  EXPECT_OK(mf_session_extend(session, ids, 12, NULL, NULL, &why));
  EXPECT_OK(mf_session_checkpoint(session, &why));
  EXPECT_OK(mf_session_extend(session, ids + 12, 8, NULL, NULL, &why));
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
    EXPECT(mf_session_position(fork) == 20 && mf_session_checkpoint_count(fork) == 1);
    EXPECT_OK(mf_session_extend(fork, ids + 20, 20, again, NULL, &why));
    EXPECT(same(expected, again, 512));
    EXPECT_OK(mf_session_restore_to(fork, 12, &why));
    EXPECT_OK(mf_session_extend(fork, ids + 12, 28, again, NULL, &why));
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
  if (count != 4) {
    fprintf(stderr, "usage: use_everything QWEN DEEPSEEK SCRATCH\n");
    return 2;
  }
  qwen = arguments[1];
  deepseek = arguments[2];
  scratch = arguments[3];
  for (int i = 0; i < kTokens; ++i) ids[i] = (uint32_t)((i * 37 + 11) % 509);

  statuses_keep_their_numbers_and_names();
  numbers_have_names();
  an_engine_that_cannot_be_opened_says_why();
  a_newer_caller_is_understood_unless_it_asks_for_news();
  an_engine_says_what_it_is();
  mf_engine *const with_recurrence = open_engine(qwen), *const without = open_engine(deepseek);
  no_session_is_no_accident(with_recurrence);
  an_observer_sees_the_step_and_changes_nothing(with_recurrence, 8, 8);
  an_observer_sees_the_step_and_changes_nothing(without, 4, 0);
  a_residual_can_be_replaced_before_a_layer(with_recurrence);
  a_residual_can_be_replaced_before_a_layer(without);
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
  printf("every function of engines and sessions was called\n");
  return 0;
}
