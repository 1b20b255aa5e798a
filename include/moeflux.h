#pragma once
/* moeflux in C11 and C++: loaded models, sessions over them, logits and text.
 *
 * Two interfaces share one engine.
 *
 *   mf_engine_*, mf_session_*   for new programs. An engine is a loaded model, a session is one timeline of
 *                               tokens over it. Options are structs; a failure is an mf_status and a message.
 *   mf_init_model, mf_eval_*    the functions of the original moeflux under their names. An mf_ctx is an
 *                               engine with one session.
 *
 * Threads: a process may have any number of engines, sessions and contexts. An engine is thread-safe and runs
 * its steps one after another; the functions mf_engine_get_* never wait for a step. A session or a context is
 * for one thread at a time. There is no global state; the message of mf_last_error(NULL) belongs to the
 * thread.
 * Ownership: the caller owns every buffer that it passes, and no call keeps a pointer to one. Each handle is
 * released by its own _close or _free, in any order: a session keeps what it needs of its engine alive.
 * Failures: no call throws, prints or reads the environment. A call that fails has changed nothing, unless
 * its comment says otherwise.
 * Logits: [vocabulary] floats, not normalized. The caller chooses the next token, or mf_generate does. The
 * same tokens give the same bits, however they are split into calls and whatever else runs.
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
  MF_NOT_FOUND = 1,        /* a file, model or tensor is missing */
  MF_IO_FAILED = 2,        /* the operating system failed to read or write */
  MF_NO_SPACE = 3,         /* the disk is full */
  MF_CORRUPT_DATA = 4,     /* bytes that contradict each other or their format */
  MF_UNSUPPORTED = 5,      /* recognized, but not supported; the message names it */
  MF_INVALID_ARGUMENT = 6, /* a null pointer, a wrong struct_size, an invalid value or request */
  MF_OUT_OF_MEMORY = 7,    /* the memory plan does not fit, or an allocation failed */
  MF_CANCELLED = 8,
  MF_TOKEN_OUT_OF_RANGE = 9,         /* a token id outside the vocabulary */
  MF_CONTEXT_FULL = 10,              /* more positions than the session has room for */
  MF_POSITION_MISMATCH = 11,         /* the session is not at the position that the caller states */
  MF_NO_CHECKPOINT = 12,             /* no checkpoint at that position */
  MF_CANNOT_TRUNCATE_RECURRENT = 13, /* a recurrent state cannot go back without running tokens */
  MF_TOKENS_UNKNOWN = 14,            /* an imported state has no tokens to run again */
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
  MF_INTERNAL = 99 /* an unexpected failure: please report its message */
} mf_status;

/* "ok", "not_found", ...; "unknown" for any other number. */
MF_API const char* mf_status_name(mf_status status);

/* What failed, in at most 511 bytes of UTF-8, cut between characters. Written only when a call fails. Every
 * mf_message argument may be NULL. */
typedef struct mf_message {
  char text[512];
} mf_message;

/* ---- Engines ------------------------------------------------------------------------------------------- */

typedef struct mf_engine mf_engine;
typedef struct mf_session mf_session;

/* What is read ahead while the drive is otherwise idle. It changes no bit of any result. */
typedef enum mf_prefetch {
  MF_PREFETCH_PREVIOUS = 0, /* the experts of the session's last token; in prompts, those of the next layer */
  MF_PREFETCH_OFF = 1
} mf_prefetch;

/* In every options struct, struct_size is the sizeof of the struct as the caller was compiled; it lets old
 * programs use newer libraries. Every other field may be 0.
 * Begin with: mf_engine_options o = {0}; o.struct_size = sizeof o; */
typedef struct mf_engine_options {
  uint32_t struct_size;
  uint32_t threads;         /* 0: one per physical core */
  const char* packed_model; /* a directory written by `moeflux pack` */
  const char* isa;          /* "scalar", "avx2", "avx512", ...; NULL: the fastest that runs here */
  uint32_t context;   /* maximum positions per session; 0: 8192, or the model's own limit if that is less */
  uint32_t step_rows; /* maximum rows per step; 0: 512 */
  uint32_t experts_per_token;   /* 0: the model's own number; more than that is MF_INVALID_ARGUMENT */
  uint32_t sessions;            /* that memory is planned for, at the full context; 0: 1 */
  uint64_t kv_budget_bytes;     /* for the states of all sessions; 0: what the memory plan leaves */
  uint64_t usable_memory_bytes; /* for the whole engine; 0: what the machine has available */

  /* Experts that do not fit in memory are read when they are needed. */
  uint64_t expert_cache_bytes; /* 0: what the memory plan leaves, or room for all if that is enough */
  /* How they are read: "uring", "pread" or "buffered", each with the next one as its fallback where the
   * system refuses it; or "sim:3G,100us" to simulate a drive of that bandwidth and latency. NULL: chosen by
   * what fits in memory. */
  const char* io;
  uint32_t prefetch;     /* an mf_prefetch */
  uint32_t verify_reads; /* nonzero: check the checksum of every expert that is read */

  const char* precision;  /* "exact" or "fast"; NULL: "fast" */
  const char* kv_numbers; /* the dtype of keys and values: "f32", "bf16" or "int8"; NULL: "f32" */
} mf_engine_options;

/* Opens a model and reads its resident weights. *engine is NULL on failure. */
MF_API mf_status mf_engine_open(const mf_engine_options* options, mf_engine** engine, mf_message* why);
MF_API void mf_engine_close(mf_engine* engine); /* NULL is allowed */

typedef struct mf_engine_info {
  uint32_t struct_size; /* set by the caller; at most this many bytes are written */
  uint32_t vocabulary;
  uint32_t context;       /* of a session */
  uint32_t max_positions; /* the model's own limit */
  uint32_t layers;
  uint32_t dim;               /* width of the residual stream, and of most observed rows */
  uint32_t experts_per_token; /* 0: no layer has routed experts */
  uint32_t step_rows;
  uint32_t threads;
  uint32_t end_tokens;     /* the number of them */
  const char* isa;         /* valid as long as the engine */
  const char* family;      /* "qwen3_5_moe", "deepseek_v3" */
  uint32_t expert_slots;   /* experts that fit in memory, over all layers */
  uint32_t expert_records; /* experts of the model; with as many slots, none is read twice */
  /* How experts are read, as "io_uring, direct reads, fixed buffers"; "" if none is read. Valid as long as
   * the engine. */
  const char* drive;
} mf_engine_info;

MF_API mf_status mf_engine_get_info(const mf_engine* engine, mf_engine_info* info, mf_message* why);
/* The end token at `index`, or -1 past the last. Any of them ends a text. */
MF_API int32_t mf_engine_end_token(const mf_engine* engine, uint32_t index);

/* Counters of expert streaming since the engine was opened. None decreases; for an interval, subtract two of
 * them. */
typedef struct mf_expert_statistics {
  uint32_t struct_size; /* set by the caller; at most this many bytes are written */
  uint32_t reserved;

  /* Experts that a layer needed, counted once per layer and step. */
  uint64_t hits;   /* were in memory */
  uint64_t misses; /* had to be read */
  uint64_t late;   /* a read was already in flight */

  /* Reads submitted to the drive. */
  uint64_t reads;            /* pieces of expert records */
  uint64_t demanded_bytes;   /* a layer needed them */
  uint64_t speculated_bytes; /* prefetched */
  uint64_t filled_bytes;     /* read early because memory has room for all experts */

  /* The outcome of prefetches. Experts that are in memory and not used yet are in none of these. */
  uint64_t useful_bytes;                                /* arrived in time */
  uint64_t late_bytes;                                  /* needed before they arrived */
  uint64_t wasted_bytes;                                /* evicted or canceled unused */
  uint64_t useful_guesses, late_guesses, wrong_guesses; /* in experts; wrong: not needed by their layer */

  uint64_t waiting_ns; /* time that layers waited for experts */
  uint64_t reading_ns; /* time with at least one read in flight, as far as the engine observed it */
} mf_expert_statistics;

/* Any thread may call this and the next two functions at any time, also from the observers of a step and the
 * callback of mf_generate. They never wait for a step.
 * All counters are of one moment, at which no layer was running its experts. While a layer of a step runs
 * them, that is the moment before it began. */
MF_API mf_status mf_engine_get_expert_statistics(const mf_engine* engine, mf_expert_statistics* statistics,
                                                 mf_message* why);

/* The steps since the engine was opened, and the memory that the states of sessions take now. */
typedef struct mf_engine_statistics {
  uint32_t struct_size; /* set by the caller; at most this many bytes are written */
  uint32_t reserved;

  uint64_t steps;           /* that succeeded */
  uint64_t rows;            /* tokens of these steps, over all sessions */
  uint64_t failed_steps;    /* that had no effect, without those that were refused before any work */
  uint64_t cancelled_steps; /* by mf_cancel */
  uint64_t stepping_ns;     /* time of the steps that succeeded */

  /* Keys, values and recurrent states of all sessions and their checkpoints. Memory that sessions share
   * counts once. */
  uint64_t kv_used_bytes;
  uint64_t kv_allocated_bytes; /* with free blocks; this is what the budget limits */
  uint64_t kv_budget_bytes;    /* 0: no limit */
} mf_engine_statistics;

MF_API mf_status mf_engine_get_statistics(const mf_engine* engine, mf_engine_statistics* statistics,
                                          mf_message* why);

typedef enum mf_expert_state {
  MF_EXPERT_ABSENT = 0,
  MF_EXPERT_LOADING = 1, /* is being read */
  MF_EXPERT_READY = 2    /* in memory */
} mf_expert_state;

/* One routed expert. This struct does not change. */
typedef struct mf_expert_residency {
  uint32_t layer, expert;
  mf_expert_state state;
  uint32_t prefetched; /* nonzero: was read ahead, and no layer has needed it since */
  /* When a layer used the expert last, also if it is absent by now; 0: never. The number counts the runs of
   * all layers: it is the same for the experts that a layer used in one step, and larger for a later use. */
  uint64_t last_use;
} mf_expert_residency;

/* Which experts are in memory now: one entry per routed expert of the model, by layer, then by number. *count
 * is the number of entries, mf_engine_info.expert_records. If it is above `room`, the call fails with
 * MF_BUFFER_TOO_SMALL and writes *count alone.
 * Each entry is of one moment. Two entries are read one after the other: if a step evicts one expert for
 * another meanwhile, both may be ready. */
MF_API mf_status mf_engine_get_residency(const mf_engine* engine, mf_expert_residency* experts, size_t room,
                                         size_t* count, mf_message* why);

/* ---- Steps --------------------------------------------------------------------------------------------- */

/* The points of a step that an observer sees. Later versions may add some; ignore unknown ones. */
typedef enum mf_step_point {
  MF_EMBEDDING = 0,     /* the rows of embed_tokens (layer 0) */
  MF_NORMED = 1,        /* a layer's input after its first norm */
  MF_MIXED = 2,         /* what the mixer adds to the residual */
  MF_MLP_NORMED = 3,    /* the MLP's input */
  MF_ROUTER_LOGITS = 4, /* [rows][experts] */
  MF_ROUTED = 5,        /* the sum of the routed experts */
  MF_SHARED = 6,        /* the shared expert's output, before its gate */
  MF_RESIDUAL = 7,      /* after the layer */
  MF_FINAL_NORM = 8,    /* the input of the output head, for the rows whose logits are wanted */
  MF_SHARED_GATE = 9    /* [rows][1]: the shared expert's gate before the sigmoid, if it has one */
} mf_step_point;
MF_API const char* mf_step_point_name(mf_step_point point);

/* Called on the thread that runs the step. `values` is [rows][cols], has the rows of the whole batch and is
 * valid during the call only. Observers change no bit of the results. They must not throw, and of the engine
 * that they observe they may call mf_engine_get_* alone. */
typedef void (*mf_step_observer)(void* user, mf_step_point point, uint32_t layer, const float* values,
                                 uint32_t rows, uint32_t cols);
/* The router's choices: `experts` and `weights` are [rows][experts_per_token], ids ascend within a row. */
typedef void (*mf_route_observer)(void* user, uint32_t layer, const uint32_t* experts, const float* weights,
                                  uint32_t rows, uint32_t experts_per_token);

/* Called before each layer with its input in `values`, [rows][cols]. To replace the input, change `values`
 * and return nonzero. Called like an observer, with the same restrictions. */
typedef int (*mf_residual_replacer)(void* user, uint32_t layer, float* values, uint32_t rows, uint32_t cols);

/* A request to stop, thread-safe. A step checks it before every layer. It stays set until it is reset. */
typedef struct mf_cancel mf_cancel;
MF_API mf_cancel* mf_cancel_new(void); /* NULL if out of memory */
MF_API void mf_cancel_request(mf_cancel* cancel);
MF_API void mf_cancel_reset(mf_cancel* cancel);
MF_API void mf_cancel_free(mf_cancel* cancel); /* NULL is allowed; no running call may use it */

typedef struct mf_step_options {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  mf_step_observer observer;
  mf_route_observer route_observer;
  void* user;                            /* passed to the observers and to replace_residual */
  const mf_cancel* cancel;               /* NULL: not cancellable */
  mf_residual_replacer replace_residual; /* NULL: none */
} mf_step_options;

typedef enum mf_wanted_logits {
  MF_LOGITS_NONE = 0, /* out is not written */
  MF_LOGITS_LAST = 1, /* out: [vocabulary] */
  MF_LOGITS_ALL = 2   /* out: [count][vocabulary] */
} mf_wanted_logits;

/* The part of a step that belongs to one session. */
typedef struct mf_segment {
  mf_session* session;
  const uint32_t* tokens;
  size_t count; /* at least one */
  mf_wanted_logits logits;
  float* out;
} mf_segment;

/* Runs several sessions of the engine through the model together, with at most step_rows rows, and advances
 * all of them or none. Each gets the same logits as if it ran alone. `options` may be NULL. */
MF_API mf_status mf_engine_step(mf_engine* engine, const mf_segment* segments, size_t count,
                                const mf_step_options* options, mf_message* why);

/* What became of a segment of mf_engine_step_each. */
typedef struct mf_outcome {
  mf_status status;
  mf_message why; /* empty if status is MF_OK */
} mf_outcome;

/* As mf_engine_step, but each segment succeeds or fails alone: for its tokens, its room in the context,
 * memory for its state, numbers that are not finite, and its cancel. A session whose segment fails does not
 * move; the others do. `cancels`: one per segment, each may be NULL; NULL: none. A status other than MF_OK
 * means that the step failed as a whole: no session has moved, and the outcomes say nothing. */
MF_API mf_status mf_engine_step_each(mf_engine* engine, const mf_segment* segments, size_t count,
                                     const mf_cancel* const* cancels, const mf_step_options* options,
                                     mf_outcome* outcomes, mf_message* why);

/* ---- Sessions ------------------------------------------------------------------------------------------ */

typedef struct mf_session_options {
  uint32_t struct_size;
  uint32_t max_checkpoints;         /* 0: 4 */
  uint64_t checkpoint_budget_bytes; /* 0: no limit */
} mf_session_options;

/* `options` may be NULL. *session is NULL on failure; so is *other of mf_session_fork. */
MF_API mf_status mf_session_open(mf_engine* engine, const mf_session_options* options, mf_session** session,
                                 mf_message* why);
MF_API void mf_session_close(mf_session* session); /* NULL is allowed */

/* The number of tokens that the session has seen; 0 for NULL. */
MF_API uint32_t mf_session_position(const mf_session* session);

/* Runs `count` tokens, in several steps if count > step_rows. `logits`, if not NULL, gets the logits after
 * the last token; a count of 0 succeeds and writes none. All tokens and the room for them are checked before
 * anything runs. If a later step fails or is cancelled, the session stays after the last step that succeeded;
 * mf_session_position returns where. `options` may be NULL. */
MF_API mf_status mf_session_extend(mf_session* session, const uint32_t* tokens, size_t count, float* logits,
                                   const mf_step_options* options, mf_message* why);

/* Opens another session at the same position. Both share the memory of what they have seen. The new one has
 * no checkpoints. */
MF_API mf_status mf_session_fork(const mf_session* session, mf_session** other, mf_message* why);

/* Resets the session to position 0 and drops its checkpoints. */
MF_API mf_status mf_session_clear(mf_session* session, mf_message* why);

/* Keeps the current state as a checkpoint. Beyond the maximum, the least recently used checkpoint is dropped,
 * except the newest and the one at position 0. */
MF_API mf_status mf_session_checkpoint(mf_session* session, mf_message* why);
/* Restores the checkpoint at exactly `position`, or fails with MF_NO_CHECKPOINT. Drops later checkpoints. */
MF_API mf_status mf_session_restore_to(mf_session* session, uint32_t position, mf_message* why);
/* Goes back to any earlier position. If a layer's state is recurrent, runs the session's own tokens again
 * from the deepest checkpoint before it. `options` are for these steps and may be NULL. */
MF_API mf_status mf_session_rewind(mf_session* session, uint32_t position, const mf_step_options* options,
                                   mf_message* why);
/* The same without running tokens; fails with MF_CANNOT_TRUNCATE_RECURRENT where that is impossible. */
MF_API mf_status mf_session_rewind_strict(mf_session* session, uint32_t position, mf_message* why);
/* Takes effect at the next checkpoint. */
MF_API mf_status mf_session_set_max_checkpoints(mf_session* session, size_t count, mf_message* why);
MF_API size_t mf_session_checkpoint_count(const mf_session* session); /* 0 for NULL */

/* Saves and loads a session with its checkpoints, as bytes (docs/formats/snapshot.md) or as a file, which
 * appears whole or not at all. A load that fails changes nothing; one that succeeds replaces the checkpoints
 * by as many of the saved ones as the session keeps. */
MF_API uint64_t mf_session_saved_bytes(const mf_session* session); /* in its current state; 0 for NULL */
MF_API mf_status mf_session_save(const mf_session* session, void* buffer, size_t size, size_t* written,
                                 mf_message* why); /* MF_BUFFER_TOO_SMALL if size < mf_session_saved_bytes */
MF_API mf_status mf_session_load(mf_session* session, const void* bytes, size_t size, mf_message* why);
MF_API mf_status mf_session_save_file(const mf_session* session, const char* path, mf_message* why);
MF_API mf_status mf_session_load_file(mf_session* session, const char* path, mf_message* why);

/* ---- Text ---------------------------------------------------------------------------------------------- */

/* A model's tokenizer, chat template and sampling defaults. Immutable; any thread. */
typedef struct mf_text mf_text;

/* Opens a folder with a tokenizer.json: a packed model or a checkpoint. *text is NULL on failure. */
MF_API mf_status mf_text_open(const char* directory, mf_text** text, mf_message* why);
MF_API void mf_text_close(mf_text* text); /* NULL is allowed; no running generation may use it */

/* Encodes `bytes` bytes of UTF-8. If `with_special` is nonzero, special tokens in the text become their ids.
 * *count is the number of tokens. If it is above `room`, the call fails with MF_BUFFER_TOO_SMALL and writes
 * *count alone. */
MF_API mf_status mf_text_tokenize(const mf_text* text, const char* words, size_t bytes, int with_special,
                                  uint32_t* tokens, size_t room, size_t* count, mf_message* why);
/* Decodes tokens to UTF-8 without a terminating NUL. *bytes and `room` work like *count and `room` above. */
MF_API mf_status mf_text_detokenize(const mf_text* text, const uint32_t* tokens, size_t count,
                                    int skip_special, char* words, size_t room, size_t* bytes,
                                    mf_message* why);

/* What mf_generate reports while it runs. */
typedef enum mf_event_kind {
  MF_EVENT_PROMPT = 0,    /* `done` of `total` tokens of the prompt have been run */
  MF_EVENT_TOKEN = 1,     /* a token was chosen: token, logprob, and its bytes in text */
  MF_EVENT_TEXT = 2,      /* text of the reply, in whole characters */
  MF_EVENT_REASONING = 3, /* text of the reasoning before the reply */
  MF_EVENT_TOOL_CALL = 4  /* a complete tool call: its name, and its arguments as JSON in text */
} mf_event_kind;

/* Valid during the call only. Fields that do not belong to the kind are 0. */
typedef struct mf_event {
  uint32_t struct_size;
  mf_event_kind kind;
  const char* text; /* not NUL-terminated */
  size_t text_bytes;
  const char* name; /* NUL-terminated */
  uint32_t token;
  float logprob; /* under the model's own distribution; NaN unless options.logprobs */
  uint32_t done, total;
} mf_event;

/* Called on the thread of mf_generate. Return nonzero to stop the generation. It must not throw and must not
 * call into the session or its engine, except mf_engine_get_*. */
typedef int (*mf_event_callback)(void* user, const mf_event* event);

typedef struct mf_generate_options {
  uint32_t struct_size;
  uint32_t max_tokens; /* of the reply; 0: as many as fit in the context */

  /* What to answer: exactly one of messages, prompt and tokens. */
  const char* messages;   /* a JSON array of messages, for the model's chat template */
  const char* prompt;     /* a text to continue, without a template; special tokens in it become their ids */
  const uint32_t* tokens; /* tokens to continue */
  size_t token_count;

  const char* tools;           /* with messages: a JSON array of tools in OpenAI's format; NULL: none */
  const char* template_kwargs; /* with messages: a JSON object of variables for the template; NULL: none */

  /* Sampling. 0 means the value of the model's generation_config.json. */
  uint32_t greedy; /* nonzero: always the most probable token, the lowest id among equals */
  uint32_t top_k;  /* to disable it, pass the size of the vocabulary */
  double temperature, top_p, min_p;
  double repetition_penalty;
  double presence_penalty, frequency_penalty; /* -2 to 2; 0: none */
  uint64_t seed;                              /* 0: a different one each time; see mf_generate_result */

  const char* const* stop; /* the reply ends before the first of these that occurs */
  size_t stop_count;
  uint32_t json_object;    /* nonzero: constrain the reply to one JSON object */
  uint32_t ignore_end;     /* nonzero: end tokens do not end the reply */
  uint32_t raw_reply;      /* nonzero: do not separate reasoning and tool calls from the text */
  uint32_t logprobs;       /* nonzero: report logprob in MF_EVENT_TOKEN */
  const mf_cancel* cancel; /* NULL: not cancellable */
} mf_generate_options;

typedef enum mf_finish {
  MF_FINISH_END = 0,          /* the model ended its reply */
  MF_FINISH_TOOL_CALLS = 1,   /* the model ended its reply and has called tools */
  MF_FINISH_STOP = 2,         /* a stop string occurred */
  MF_FINISH_LENGTH = 3,       /* max_tokens reached */
  MF_FINISH_CONTEXT_FULL = 4, /* the session has no room for another token */
  MF_FINISH_CANCELLED = 5     /* by mf_cancel, or by the callback */
} mf_finish;

typedef struct mf_generate_result {
  uint32_t struct_size; /* set by the caller; at most this many bytes are written */
  mf_finish finish;
  uint32_t prompt_tokens;
  uint32_t reused_tokens; /* of these, already in the session and not run again */
  uint32_t reply_tokens;  /* without the end token */
  int32_t stop;           /* the index of the stop string, or -1 */
  uint64_t seed;
  double prompt_seconds, reply_seconds;
} mf_generate_result;

/* Generates a reply. Tokens that the session and the prompt have in common are not run again. Afterwards the
 * session has seen the prompt and the reply, except the reply's last token unless the model ended it itself.
 * Cancellation is not a failure. `callback`, `result` and `why` may be NULL. */
MF_API mf_status mf_generate(mf_session* session, const mf_text* text, const mf_generate_options* options,
                             mf_event_callback callback, void* user, mf_generate_result* result,
                             mf_message* why);

/* ---- The original's functions -------------------------------------------------------------------------- */

/* Differences from the original:
 *   - A process may have several contexts, and freeing one releases everything that it holds.
 *   - start_pos and pos must equal the context's position; the original accepted any number. The same holds
 *     for mf_checkpoint.
 *   - mf_memory_seq_rm restores the exact state; the original lost the state of recurrent layers, and the
 *     tail after a middle range.
 *   - mf_state_load changes nothing when it fails. It also reads the original's snapshots, versions 1 and 2.
 *   - The misses of mf_prefetch_stats are wrong guesses; the original counted the needed experts that
 *     it had not guessed, many of which are in memory here.
 *   - seq_id is 0 or -1, which mean the same; any other number fails.
 *
 * The original's diagnostics of single operations are replaced by:
 *   mf_embed_lookup                                          a step observer at MF_EMBEDDING
 *   mf_rms_norm_cpu, mf_rms_norm_bare_cpu                    at MF_NORMED, MF_MLP_NORMED and MF_FINAL_NORM
 *   mf_layer_forward_dump, .._intermediates                  at every point of a layer, and replace_residual
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

/* Opens a packed model, or the original's artifacts.
 * `weights`: the directory of a packed model, and the other paths are ignored; or the original's
 * model_weights.bin, and then `manifest` is model_weights.json and `experts_dir` is the folder with
 * packed_experts, in one of the layouts of docs/formats/original.md. `vocab` is ignored.
 * The original's artifacts are packed once, into the folder moeflux_packed in `experts_dir`, or
 * moeflux_packed_2bit with 2-bit experts. That takes as much time and space as a copy; an interrupted pack
 * continues, and a call waits while another thread or process packs the same artifacts. An existing packed
 * model is used if its shape is that of the artifacts: remove it after you replace them.
 * `experts_per_token`: 0, a negative number or one above the model's own means the model's own.
 * `use_2bit`, for the original's artifacts: nonzero takes packed_experts_2bit, which must exist; 0 takes
 * packed_experts, or packed_experts_2bit if there is no packed_experts.
 * The context has room for 8192 positions, or the model's own limit if that is less. Returns NULL on failure;
 * mf_last_error(NULL) returns why. */
MF_API mf_ctx* mf_init_model(const char* weights, const char* manifest, const char* vocab,
                             const char* experts_dir, int experts_per_token, int use_2bit);

/* Called while the original's artifacts are packed, on any thread, but not by two at a time. `done_bytes` of
 * `total_bytes` of the packed model are written, those of an earlier, interrupted pack included. Return
 * nonzero to cancel. It must not throw. */
typedef int (*mf_pack_progress)(void* user, uint64_t done_bytes, uint64_t total_bytes);

typedef struct mf_init_options {
  uint32_t struct_size;
  uint32_t use_2bit;       /* as for mf_init_model */
  const char* weights;     /* as for mf_init_model, like the two below */
  const char* manifest;    /* NULL for a packed model */
  const char* experts_dir; /* NULL for a packed model */
  /* As for mf_engine_open, with two exceptions: packed_model must be NULL, and a precision of NULL means
   * "exact". NULL: every field is 0. */
  const mf_engine_options* engine;
  mf_pack_progress progress; /* NULL: none */
  void* user;                /* passed to `progress` */
  const mf_cancel* cancel;   /* cancels the packing; NULL: not cancellable */
} mf_init_options;

/* mf_init_model with all options of an engine. *ctx is NULL on failure; mf_last_error(NULL) returns why, too.
 * A cancelled pack is MF_CANCELLED: what it has finished stays in experts_dir, and the next call continues
 * it. */
MF_API mf_status mf_init_model_with(const mf_init_options* options, mf_ctx** ctx, mf_message* why);
MF_API void mf_free_model(mf_ctx* ctx); /* NULL is allowed */

/* The engine and the session of a context, for the functions that the original did not have: observers, text,
 * statistics, files. They live as long as the context: do not close them. NULL for NULL. */
MF_API mf_engine* mf_ctx_engine(mf_ctx* ctx);
MF_API mf_session* mf_ctx_session(mf_ctx* ctx);

/* The message of the last failed call with this context, or ""; valid until the next failure. For NULL: the
 * message of this thread's last failure of mf_init_model or of a call whose context was NULL. */
MF_API const char* mf_last_error(const mf_ctx* ctx);

/* Return 0 or the mf_status of the failure. `logits` is [mf_n_vocab] and gets the logits after the last
 * token. A count of 0 returns 0 and leaves `logits` alone. Tokens and room are checked first. If a later step
 * of a long prompt fails, the steps before it stay done; mf_memory_seq_pos_max returns how far they came. */
MF_API int mf_eval_prompt(mf_ctx* ctx, const int32_t* tokens, size_t count, size_t start_pos, int seq_id,
                          float* logits);
MF_API int mf_eval_token(mf_ctx* ctx, int32_t token, size_t pos, int seq_id, float* logits);

MF_API void mf_memory_clear(mf_ctx* ctx); /* drops checkpoints too */
/* NONZERO IS SUCCESS. Removes the positions [p0, p1). A negative p0 means 0; a negative p1, or one at or
 * above the length, means the end; p0 at or above the length removes nothing. A range that stops before the
 * end cannot be removed: the call returns 0 and changes nothing. If a layer's state is recurrent, the tokens
 * before p0 are run again from the deepest checkpoint. */
MF_API int mf_memory_seq_rm(mf_ctx* ctx, int seq_id, int p0, int p1);
/* The length, which is the next position; 0 if empty; -1 for NULL or another seq_id. */
MF_API int mf_memory_seq_pos_max(mf_ctx* ctx, int seq_id);

MF_API size_t mf_n_vocab(const mf_ctx* ctx); /* 0 for NULL */
MF_API size_t mf_n_ctx(const mf_ctx* ctx);   /* 0 for NULL */
MF_API int32_t mf_eos(const mf_ctx* ctx);    /* the first end token; -1 if there is none, or for NULL */
MF_API int mf_is_end(const mf_ctx* ctx, int32_t token); /* nonzero for any of the model's end tokens */
MF_API const char* mf_model_name(
    const mf_ctx* ctx); /* its folder's name, valid as long as ctx; NULL for NULL */

/* A state has the checkpoints too, and mf_state_load replaces those of the context by them. */
MF_API size_t mf_state_size(const mf_ctx* ctx);                         /* in its current state; 0 for NULL */
MF_API long long mf_state_save(mf_ctx* ctx, void* buffer, size_t size); /* bytes written, or -1 */
MF_API int mf_state_load(mf_ctx* ctx, const void* buffer, size_t size); /* 0, or -1 with nothing changed */

/* The original's checkpoint_pos, restore_to and related methods, which had no C functions. Return 0 or the
 * mf_status. */
MF_API int mf_checkpoint(mf_ctx* ctx, size_t pos);
MF_API int mf_restore_to(mf_ctx* ctx, size_t pos);
MF_API void mf_set_max_checkpoints(mf_ctx* ctx, size_t count); /* from the next checkpoint on; default 4 */
MF_API size_t mf_checkpoint_count(const mf_ctx* ctx);          /* 0 for NULL */

/* Counts prefetched experts since the context was opened or mf_prefetch_reset was called: `hits` were needed,
 * `misses` were not. An expert in memory is not prefetched, so neither number changes once memory holds all
 * experts. Either pointer may be NULL; both numbers are 0 if ctx is NULL. */
MF_API void mf_prefetch_stats(const mf_ctx* ctx, uint64_t* hits, uint64_t* misses);
MF_API void mf_prefetch_reset(mf_ctx* ctx); /* counts from 0 again */
/* Forgets the tokens seen so far as a base for prefetch; the next token is the first that counts. */
MF_API void mf_prefetch_clear_predictions(mf_ctx* ctx);

#ifdef __cplusplus
}
#endif
