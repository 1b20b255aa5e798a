#pragma once
/* moeflux in C: loaded models, timelines of tokens over them, logits, text. C11 and C++.
 *
 * Two interfaces stand on the same engine.
 *
 *   mf_engine_*, mf_session_*   for new programs: an engine is a loaded model, a session is one timeline of
 *                               tokens over it; options are structs, failures an mf_status and a message.
 *   mf_init_model, mf_eval_*    the functions of the original moeflux under their names: an mf_ctx is an
 *                               engine with one session.
 *
 * Threads: any number of engines, sessions and contexts in a process. An engine may be used by any thread;
 * its steps are done one after another. A session or a context is for one thread at a time. Nothing is
 * global; the message of mf_last_error(NULL) is the thread's.
 * Ownership: the caller owns every buffer that it passes; nothing is kept after a call returns. A handle is
 * given back by its own _close or _free, in any order: a session keeps what it needs of its engine.
 * Failures: nothing is thrown, printed or read from the environment. A call that fails has changed nothing,
 * unless it says otherwise.
 * Logits: [vocabulary] floats, not normalised; choosing a token is the caller's business, or mf_generate's.
 * The same tokens give the same bits, however they are cut into calls, and whatever else runs.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MF_API __attribute__((visibility("default")))
#else
#define MF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
MF_API const char* mf_version(void);

/* ---- Failures ------------------------------------------------------------------------------------------ */

/* The numbers do not change; later versions may add some. */
typedef enum mf_status {
  MF_OK = 0,
  MF_NOT_FOUND = 1,        /* a file, model or tensor that should be there is not */
  MF_IO_FAILED = 2,        /* the operating system could not read or write */
  MF_NO_SPACE = 3,         /* the disk is full */
  MF_CORRUPT_DATA = 4,     /* bytes that contradict themselves or their format */
  MF_UNSUPPORTED = 5,      /* understood, and refused by name */
  MF_INVALID_ARGUMENT = 6, /* a null pointer, a wrong struct_size, a request that makes no sense */
  MF_OUT_OF_MEMORY = 7,    /* the memory plan does not fit, or an allocation failed */
  MF_CANCELLED = 8,
  MF_TOKEN_OUT_OF_RANGE = 9,         /* a token id that the vocabulary does not have */
  MF_CONTEXT_FULL = 10,              /* more positions than a session has room for */
  MF_POSITION_MISMATCH = 11,         /* a session is not where its caller thinks it is */
  MF_NO_CHECKPOINT = 12,             /* there is none at that position */
  MF_CANNOT_TRUNCATE_RECURRENT = 13, /* a recurrent state has no past */
  MF_TOKENS_UNKNOWN = 14,            /* an imported state cannot be run again */
  /* Saved sessions: docs/formats/snapshot.md */
  MF_BUFFER_TOO_SMALL = 15,
  MF_BAD_MAGIC = 16,
  MF_BAD_VERSION = 17,
  MF_SHAPE_MISMATCH = 18,
  MF_NEGATIVE_LENGTH = 19,
  MF_LENGTH_OVERFLOW = 20,
  MF_UNEQUAL_LENGTHS = 21,
  MF_TRUNCATED = 22,
  MF_TRAILING_BYTES = 23,
  MF_WRONG_MODEL = 24,
  MF_WRONG_NUMERICS = 25,
  MF_BAD_CHECKSUM = 26,
  MF_INTERNAL = 99 /* a failure that nobody foresaw: please report its message */
} mf_status;

/* "ok", "not_found", ...; "unknown" for a number that is none of them. */
MF_API const char* mf_status_name(mf_status status);

/* A sentence of at most 511 bytes, cut at the end of a character; written only when a call fails. May be
 * NULL. */
typedef struct mf_message {
  char text[512];
} mf_message;

/* ---- Engines ------------------------------------------------------------------------------------------- */

typedef struct mf_engine mf_engine;
typedef struct mf_session mf_session;

/* What is read while the drive would idle. It changes no bit of what is computed. */
typedef enum mf_prefetch {
  MF_PREFETCH_PREVIOUS = 0, /* the experts of the session's last token; in prompts the next layer's */
  MF_PREFETCH_OFF = 1
} mf_prefetch;

/* In every struct of options struct_size is its sizeof where the caller was compiled, which lets old callers
 * meet new libraries; everything else may be 0. Begin with: mf_engine_options o = {0}; o.struct_size = sizeof
 * o; */
typedef struct mf_engine_options {
  uint32_t struct_size;
  uint32_t threads;         /* 0: one a physical core */
  const char* packed_model; /* a directory that `moeflux pack` wrote */
  const char* isa;          /* "scalar", "avx2", "avx512", ...; NULL: the fastest that runs here */
  uint32_t context;         /* positions of a session at most; 0: 8192, or the model's own if that is less */
  uint32_t step_rows;       /* rows of a step at most; 0: 512 */
  uint32_t experts_per_token;   /* 0: the model's own; more than that is MF_INVALID_ARGUMENT */
  uint32_t reserved;            /* 0 */
  uint64_t kv_budget_bytes;     /* keys and values of all sessions together; 0: no limit */
  uint64_t usable_memory_bytes; /* that the engine may take; 0: what the machine has available */

  /* Experts that memory has no room for are read when they are wanted. */
  uint64_t expert_cache_bytes; /* memory for experts; 0: what the memory plan leaves, all if that is enough */
  /* How they are read: "uring", "pread", "buffered", each the next one where the system refuses it; or
   * "sim:3G,100us", as a drive would of that speed and latency. NULL: by what the machine has. */
  const char* io;
  uint32_t prefetch;     /* an mf_prefetch */
  uint32_t verify_reads; /* nonzero: every expert that is read is compared with its checksum */

  const char* precision;  /* "exact" or "fast"; NULL: "fast" */
  const char* kv_numbers; /* how keys and values are kept: "f32", "bf16" or "int8"; NULL: "f32" */
} mf_engine_options;

/* Reads the weights. *engine is set on success and NULL otherwise. */
MF_API mf_status mf_engine_open(const mf_engine_options* options, mf_engine** engine, mf_message* why);
MF_API void mf_engine_close(mf_engine* engine); /* NULL is allowed */

typedef struct mf_engine_info {
  uint32_t struct_size; /* set by the caller; no more than this is written */
  uint32_t vocabulary;
  uint32_t context;       /* of a session */
  uint32_t max_positions; /* that the model was trained for */
  uint32_t layers;
  uint32_t dim;               /* of the residual stream: the columns of most observed rows */
  uint32_t experts_per_token; /* 0: no layer has routed experts */
  uint32_t step_rows;
  uint32_t threads;
  uint32_t end_tokens;     /* how many there are */
  const char* isa;         /* as long as the engine */
  const char* family;      /* "qwen3_5_moe", "deepseek_v3" */
  uint32_t expert_slots;   /* experts that memory has room for, of all layers together */
  uint32_t expert_records; /* that the model has; as many slots: none is ever read twice */
  /* How experts are read, as long as the engine: "io_uring, direct reads, fixed buffers"; "": not at all. */
  const char* drive;
} mf_engine_info;

MF_API mf_status mf_engine_get_info(const mf_engine* engine, mf_engine_info* info, mf_message* why);
/* The end token number `index`, or -1. A text ends at any of them. */
MF_API int32_t mf_engine_end_token(const mf_engine* engine, uint32_t index);

/* What streaming the experts took since the engine was opened; a part of the time is a difference of two. */
typedef struct mf_expert_statistics {
  uint32_t struct_size; /* set by the caller; no more than this is written */
  uint32_t reserved;

  /* Experts that were wanted, once a layer and step. */
  uint64_t hits;   /* in memory */
  uint64_t misses; /* had to be read */
  uint64_t late;   /* were being read when they were wanted */

  /* Handed to the drive. */
  uint64_t reads;            /* pieces of experts */
  uint64_t demanded_bytes;   /* because they were wanted */
  uint64_t speculated_bytes; /* because they might be */
  uint64_t filled_bytes;     /* because there was room for all */

  /* What became of speculation; what is still unused is in none of them. */
  uint64_t useful_bytes;                                /* there in time */
  uint64_t late_bytes;                                  /* wanted before they were there */
  uint64_t wasted_bytes;                                /* gone unused */
  uint64_t useful_guesses, late_guesses, wrong_guesses; /* the same, in experts; wrong when not wanted */

  uint64_t waiting_ns; /* a layer stood still for its experts */
  uint64_t reading_ns; /* at least one read was out, as far as anybody looked */
} mf_expert_statistics;

/* Waits for the step that runs, if one does. */
MF_API mf_status mf_engine_get_expert_statistics(const mf_engine* engine, mf_expert_statistics* statistics,
                                                 mf_message* why);

/* ---- Steps --------------------------------------------------------------------------------------------- */

/* Where an observer looks. */
typedef enum mf_step_point {
  MF_EMBEDDING = 0,     /* the rows of embed_tokens (layer 0) */
  MF_NORMED = 1,        /* a layer's input after its first norm */
  MF_MIXED = 2,         /* what the mixer adds to the residual */
  MF_MLP_NORMED = 3,    /* the MLP's input */
  MF_ROUTER_LOGITS = 4, /* [rows][experts] */
  MF_ROUTED = 5,        /* the sum of the routed experts */
  MF_SHARED = 6,        /* the shared expert's output, before its gate */
  MF_RESIDUAL = 7,      /* after the layer */
  MF_FINAL_NORM = 8     /* the input of the output head: the rows whose logits are wanted */
} mf_step_point;
MF_API const char* mf_step_point_name(mf_step_point point);

/* Called on the thread of the step, while it runs. `values` is [rows][cols], those of the whole batch, and is
 * gone when the call returns. An observer changes no bit; it must not throw, and not call into the engine
 * that it observes. */
typedef void (*mf_step_observer)(void* user, mf_step_point point, uint32_t layer, const float* values,
                                 uint32_t rows, uint32_t cols);
/* The router's choices, [rows][experts_per_token] each, ids ascending in a row. */
typedef void (*mf_route_observer)(void* user, uint32_t layer, const uint32_t* experts, const float* weights,
                                  uint32_t rows, uint32_t experts_per_token);

/* A wish to stop that any thread may express. It is looked at before every layer, and stays until it is
 * reset. */
typedef struct mf_cancel mf_cancel;
MF_API mf_cancel* mf_cancel_new(void); /* NULL: out of memory */
MF_API void mf_cancel_request(mf_cancel* cancel);
MF_API void mf_cancel_reset(mf_cancel* cancel);
MF_API void mf_cancel_free(mf_cancel* cancel); /* NULL is allowed; when no step looks at it any more */

typedef struct mf_step_options {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  mf_step_observer observer;
  mf_route_observer route_observer;
  void* user;              /* passed to both */
  const mf_cancel* cancel; /* NULL: never */
} mf_step_options;

typedef enum mf_wanted_logits {
  MF_LOGITS_NONE = 0, /* out is not written */
  MF_LOGITS_LAST = 1, /* out: [vocabulary] */
  MF_LOGITS_ALL = 2   /* out: [count][vocabulary] */
} mf_wanted_logits;

/* A session's part of a step. */
typedef struct mf_segment {
  mf_session* session;
  const uint32_t* tokens;
  size_t count; /* at least one */
  mf_wanted_logits logits;
  float* out;
} mf_segment;

/* Runs several sessions of the engine through the model together, at most step_rows rows, and moves all of
 * them or none. Each gets the logits that it would get alone. `options` may be NULL. */
MF_API mf_status mf_engine_step(mf_engine* engine, const mf_segment* segments, size_t count,
                                const mf_step_options* options, mf_message* why);

/* ---- Sessions ------------------------------------------------------------------------------------------ */

typedef struct mf_session_options {
  uint32_t struct_size;
  uint32_t max_checkpoints;         /* 0: 4 */
  uint64_t checkpoint_budget_bytes; /* 0: no limit */
} mf_session_options;

/* `options` may be NULL. *session is set on success and NULL otherwise, here and in mf_session_fork. */
MF_API mf_status mf_session_open(mf_engine* engine, const mf_session_options* options, mf_session** session,
                                 mf_message* why);
MF_API void mf_session_close(mf_session* session); /* NULL is allowed */

/* How many tokens the session has seen; 0 for NULL. */
MF_API uint32_t mf_session_position(const mf_session* session);

/* Runs `count` tokens, in several steps if they are many. `logits`, if not NULL, gets those after the last
 * token; no tokens is success and writes none. Tokens and room are checked for all of them before anything
 * runs; when a later step fails or is cancelled, the session stands after the last one that succeeded:
 * mf_session_position says where. `options` may be NULL. */
MF_API mf_status mf_session_extend(mf_session* session, const uint32_t* tokens, size_t count, float* logits,
                                   const mf_step_options* options, mf_message* why);

/* Another session at the same position, sharing what both have seen; it has no checkpoints. */
MF_API mf_status mf_session_fork(const mf_session* session, mf_session** other, mf_message* why);

/* As new; checkpoints are gone. */
MF_API mf_status mf_session_clear(mf_session* session, mf_message* why);

/* Keeps the state under its position. When there are too many the least recently used one goes, but never the
 * newest nor the one at position 0. */
MF_API mf_status mf_session_checkpoint(mf_session* session, mf_message* why);
/* To a checkpoint at exactly `position`, or MF_NO_CHECKPOINT. Later ones are dropped. */
MF_API mf_status mf_session_restore_to(mf_session* session, uint32_t position, mf_message* why);
/* To any earlier position. Where a layer's state is recurrent, the session's own tokens are run again from
 * the deepest checkpoint before it; `options`, which may be NULL, are for these steps. */
MF_API mf_status mf_session_rewind(mf_session* session, uint32_t position, const mf_step_options* options,
                                   mf_message* why);
/* The same without running anything, or MF_CANNOT_TRUNCATE_RECURRENT. */
MF_API mf_status mf_session_rewind_strict(mf_session* session, uint32_t position, mf_message* why);
/* Takes effect with the next checkpoint. */
MF_API mf_status mf_session_set_max_checkpoints(mf_session* session, size_t count, mf_message* why);
MF_API size_t mf_session_checkpoint_count(const mf_session* session); /* 0 for NULL */

/* The session as bytes (docs/formats/snapshot.md), and as a file that appears whole or not at all. A load
 * that fails changes nothing; one that succeeds drops the checkpoints. */
MF_API uint64_t mf_session_saved_bytes(const mf_session* session); /* at its position now; 0 for NULL */
MF_API mf_status mf_session_save(const mf_session* session, void* buffer, size_t size, size_t* written,
                                 mf_message* why); /* MF_BUFFER_TOO_SMALL if size < mf_session_saved_bytes */
MF_API mf_status mf_session_load(mf_session* session, const void* bytes, size_t size, mf_message* why);
MF_API mf_status mf_session_save_file(const mf_session* session, const char* path, mf_message* why);
MF_API mf_status mf_session_load_file(mf_session* session, const char* path, mf_message* why);

/* ---- Text ---------------------------------------------------------------------------------------------- */

/* A model's tokenizer, its chat template and how it wishes to be sampled. Immutable: any thread. */
typedef struct mf_text mf_text;

/* Of a folder with a tokenizer.json: a packed model's, or a checkpoint's. *text is set on success and NULL
 * otherwise. */
MF_API mf_status mf_text_open(const char* directory, mf_text** text, mf_message* why);
MF_API void mf_text_close(mf_text* text); /* NULL is allowed; when no generation uses it any more */

/* The tokens of `bytes` bytes. `with_special`: nonzero lets special tokens in the text become their ids. *count
 * is how many there are, also when `room` is too small for them: MF_BUFFER_TOO_SMALL, and nothing is written. */
MF_API mf_status mf_text_tokenize(const mf_text* text, const char* words, size_t bytes, int with_special,
                                  uint32_t* tokens, size_t room, size_t* count, mf_message* why);
/* The text of tokens, as UTF-8 without a NUL at its end; *bytes and `room` likewise. */
MF_API mf_status mf_text_detokenize(const mf_text* text, const uint32_t* tokens, size_t count,
                                    int skip_special, char* words, size_t room, size_t* bytes,
                                    mf_message* why);

/* What happens in a generation, in order. */
typedef enum mf_event_kind {
  MF_EVENT_PROMPT = 0,    /* done of total tokens of the prompt have been read */
  MF_EVENT_TOKEN = 1,     /* a token was chosen: token, logprob, and in text the bytes that it stands for */
  MF_EVENT_TEXT = 2,      /* text of the reply: whole characters */
  MF_EVENT_REASONING = 3, /* text of the reasoning before it */
  MF_EVENT_TOOL_CALL = 4  /* a whole call of a tool: its name, and its arguments as JSON in text */
} mf_event_kind;

/* Valid for the length of the call; what does not belong to the kind is 0. */
typedef struct mf_event {
  uint32_t struct_size;
  mf_event_kind kind;
  const char* text; /* not ended by a NUL */
  size_t text_bytes;
  const char* name; /* ended by a NUL */
  uint32_t token;
  float logprob; /* of the model's own distribution; NaN unless logprobs are asked for */
  uint32_t done, total;
} mf_event;

/* Called on the thread of mf_generate. Nonzero stops the generation. It must not throw, and not call into the
 * session or its engine. */
typedef int (*mf_event_callback)(void* user, const mf_event* event);

typedef struct mf_generate_options {
  uint32_t struct_size;
  uint32_t max_tokens; /* of the reply; 0: what the context has room for */

  /* What to answer; one of these. */
  const char* messages;   /* a JSON array of messages, through the model's chat template */
  const char* prompt;     /* a text to go on with, as it is; special tokens in it are special */
  const uint32_t* tokens; /* tokens to go on with */
  size_t token_count;

  const char* tools;           /* with messages: a JSON array of tools in OpenAI's form; NULL: none */
  const char* template_kwargs; /* with messages: a JSON object of variables for the template; NULL: none */

  /* How tokens are chosen. 0 is what the model's generation_config.json says, here and below. */
  uint32_t greedy; /* nonzero: always the best token, the lowest id of equals */
  uint32_t top_k;  /* all of them: the size of the vocabulary */
  double temperature, top_p, min_p;
  double repetition_penalty;
  double presence_penalty, frequency_penalty; /* 0: none */
  uint64_t seed;                              /* 0: another one each time; mf_generate_result has it */

  const char* const* stop; /* the reply ends before the first of these */
  size_t stop_count;
  uint32_t json_object;    /* nonzero: the reply is exactly one JSON object */
  uint32_t ignore_end;     /* nonzero: end tokens are tokens like others */
  uint32_t raw_reply;      /* nonzero: reasoning and tool calls are not looked for, all of it is text */
  uint32_t logprobs;       /* nonzero: MF_EVENT_TOKEN has the token's logprob */
  const mf_cancel* cancel; /* NULL: never */
} mf_generate_options;

typedef enum mf_finish {
  MF_FINISH_END = 0,          /* the model ended its reply */
  MF_FINISH_TOOL_CALLS = 1,   /* the same, and it has called tools */
  MF_FINISH_STOP = 2,         /* one of the stop strings */
  MF_FINISH_LENGTH = 3,       /* max_tokens */
  MF_FINISH_CONTEXT_FULL = 4, /* the session has no room for another token */
  MF_FINISH_CANCELLED = 5     /* by mf_cancel, or by the callback */
} mf_finish;

typedef struct mf_generate_result {
  uint32_t struct_size; /* set by the caller; no more than this is written */
  mf_finish finish;
  uint32_t prompt_tokens;
  uint32_t reused_tokens; /* of these, not run again: the session knew them */
  uint32_t reply_tokens;  /* without an end token */
  int32_t stop;           /* which of the stop strings, or -1 */
  uint64_t seed;
  double prompt_seconds, reply_seconds;
} mf_generate_result;

/* Generates a reply. What the session has in common with the prompt is not run again; afterwards it has seen the
 * prompt and the reply, but its last token unless the model ended it itself. Being cancelled is not a failure. `callback`, `result` and `why` may
 * be NULL. */
MF_API mf_status mf_generate(mf_session* session, const mf_text* text, const mf_generate_options* options,
                             mf_event_callback callback, void* user, mf_generate_result* result,
                             mf_message* why);

/* ---- The original's functions -------------------------------------------------------------------------- */

/* What differs from the original, and why:
 *   - Several contexts may live in a process, and freeing one gives everything back.
 *   - start_pos and pos must be the context's position; the original took any number. The same holds for
 *     mf_checkpoint.
 *   - mf_memory_seq_rm goes back to the exact state; the original lost the recurrent layers, and the tail
 *     after a middle range.
 *   - mf_state_load changes nothing when it fails. It reads the original's snapshots (versions 1 and 2) too.
 *   - The misses of mf_prefetch_stats are wrong guesses; the original counted wanted experts that it had not
 *     guessed, many of which are in memory here.
 *   - seq_id is 0 or -1, which mean the same; any other number is a failure.
 *
 * Its diagnostics of single operations are gone. What replaces them:
 *   mf_embed_lookup                                          a step observer at MF_EMBEDDING
 *   mf_rms_norm_cpu, mf_rms_norm_bare_cpu                    at MF_NORMED, MF_MLP_NORMED and MF_FINAL_NORM
 *   mf_layer_forward_dump, .._intermediates                  at every point of a layer
 *   mf_moe_router_cpu                                        at MF_ROUTER_LOGITS, and a route observer
 *   mf_gpu_expert_forward, mf_gpu_batched_experts_forward,   at MF_ROUTED and MF_SHARED
 *     mf_begin_, mf_complete_, mf_discard_deferred_experts
 *   mf_lm_head_cpu                                           the logits of mf_session_extend
 *   mf_sdpa_cpu, mf_attn_*, mf_sigmoid_gate,                 at MF_MIXED; their arithmetic is specified in
 *     mf_apply_rotary_emb, mf_rms_norm_per_head_cpu,         docs/arithmetic.md and tested against it
 *     mf_rms_norm_gated_cpu, mf_conv1d_step_cpu,
 *     mf_gated_delta_recurrence_cpu, mf_gpu_rms_norm_fused
 *   mf_load_expert_bytes                                     docs/formats/packed_model.md says where they are
 */
typedef struct mf_ctx mf_ctx;

/* `weights` is a packed model's directory, and the other paths are NULL or not looked at; or it is the
 * original's model_weights.bin, and then `manifest` is model_weights.json and `experts_dir` the folder that
 * holds packed_experts, in one of the layouts of docs/formats/original.md. `vocab` is not needed.
 * The original's artifacts are packed first, into the folder moeflux_packed in `experts_dir`: once, which
 * takes as long as copying them and as much room; a pack that was interrupted goes on. A packed model that is
 * there already is used if its shape is that of the artifacts; whoever replaces them removes it.
 * `experts_per_token`: 0 or less is the model's own, as is more than that. `use_2bit`, for the original's
 * artifacts: nonzero insists on packed_experts_2bit; 0 takes packed_experts, and the other if that is all
 * there is. The context has room for 8192 positions, or the model's own if that is less. NULL on failure;
 * mf_last_error(NULL) says why. */
MF_API mf_ctx* mf_init_model(const char* weights, const char* manifest, const char* vocab,
                             const char* experts_dir, int experts_per_token, int use_2bit);
MF_API void mf_free_model(mf_ctx* ctx); /* NULL is allowed */

/* The message of the last call with this context that failed, or ""; it stays until the next such call. For
 * NULL: of the last failure on this thread of mf_init_model, or of a call that was given no context. */
MF_API const char* mf_last_error(const mf_ctx* ctx);

/* 0, or the mf_status of the failure. logits: [mf_n_vocab], those after the last token. No tokens: 0, and
 * `logits` is not touched. Tokens and room are checked first; a step of a long prompt that fails later leaves
 * those before it done: mf_memory_seq_pos_max says how far. */
MF_API int mf_eval_prompt(mf_ctx* ctx, const int32_t* tokens, size_t count, size_t start_pos, int seq_id,
                          float* logits);
MF_API int mf_eval_token(mf_ctx* ctx, int32_t token, size_t pos, int seq_id, float* logits);

MF_API void mf_memory_clear(mf_ctx* ctx); /* checkpoints are gone */
/* NONZERO IS SUCCESS. Removes positions p0 up to p1: p0 < 0 is 0; p1 < 0, or not below the length, is the
 * end; p0 not below the length removes nothing. A range that ends before the end cannot be removed: 0, and
 * nothing changes. Where a layer's state is recurrent, the tokens before p0 are run again from the deepest
 * checkpoint. */
MF_API int mf_memory_seq_rm(mf_ctx* ctx, int seq_id, int p0, int p1);
/* The length, which is the next position; 0 when empty; -1 for NULL or another seq_id. */
MF_API int mf_memory_seq_pos_max(mf_ctx* ctx, int seq_id);

MF_API size_t mf_n_vocab(const mf_ctx* ctx); /* 0 for NULL */
MF_API size_t mf_n_ctx(const mf_ctx* ctx);   /* 0 for NULL */
MF_API int32_t mf_eos(const mf_ctx* ctx);    /* the first end token; -1 if there is none, or for NULL */
MF_API int mf_is_end(const mf_ctx* ctx, int32_t token); /* nonzero: any of the model's end tokens */
MF_API const char* mf_model_name(const mf_ctx* ctx);    /* its folder's name; as long as ctx; NULL for NULL */

MF_API size_t mf_state_size(const mf_ctx* ctx);                         /* bytes now; 0 for NULL */
MF_API long long mf_state_save(mf_ctx* ctx, void* buffer, size_t size); /* bytes written, or -1 */
MF_API int mf_state_load(mf_ctx* ctx, const void* buffer, size_t size); /* 0, or -1 and nothing changed */

/* The original's checkpoint_pos, restore_to and their siblings, which had no C functions. 0, or the
 * mf_status. */
MF_API int mf_checkpoint(mf_ctx* ctx, size_t pos);
MF_API int mf_restore_to(mf_ctx* ctx, size_t pos);
MF_API void mf_set_max_checkpoints(mf_ctx* ctx, size_t count); /* from the next checkpoint on; 4 at first */
MF_API size_t mf_checkpoint_count(const mf_ctx* ctx);          /* 0 for NULL */

/* Guesses at the next token's experts, since the context was opened or mf_prefetch_reset was called: `hits`
 * were wanted, `misses` were read for nothing. An expert that is in memory already needs no guess, so both
 * stay as they are once memory holds all of them. Either pointer may be NULL; both are 0 for NULL. */
MF_API void mf_prefetch_stats(const mf_ctx* ctx, uint64_t* hits, uint64_t* misses);
MF_API void mf_prefetch_reset(mf_ctx* ctx); /* they are counted from 0 again */
/* Nothing is guessed from the tokens before; the next token is the first to guess from. */
MF_API void mf_prefetch_clear_predictions(mf_ctx* ctx);

#ifdef __cplusplus
}
#endif
