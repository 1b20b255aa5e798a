/* use_text PACKED MESSAGES TOOLS IDS REPLY: the text half of moeflux.h, on a packed model with a template.
 *
 * MESSAGES and TOOLS are JSON files (TOOLS may be empty). IDS has the token ids of the greedy reply, one per
 * line, and REPLY its text. Compiled as C11 and as C++20. Exits with 0, or with 1 after a line that says what
 * was expected. */

#include <moeflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)
#define EXPECT_OK(call) expect((call) == MF_OK, #call, __LINE__)

enum { kMost = 1 << 20 };

static mf_message why;

static void expect(int kept, const char* what, int line) {
  if (kept) return;
  fprintf(stderr, "use_text.c:%d: expected %s; last message: %s\n", line, what, why.text);
  exit(1);
}

static char* read_file(const char* path) {
  FILE* const file = fopen(path, "rb");
  expect(file != NULL, path, __LINE__);
  char* const text = (char*)calloc(kMost, 1);
  EXPECT(text != NULL);
  EXPECT(fread(text, 1, kMost - 1, file) < kMost - 1);
  fclose(file);
  return text;
}

/* What a callback received. */
typedef struct heard {
  char text[4096], reasoning[4096], tool[256], arguments[4096], bytes[4096];
  uint32_t tokens[1024];
  size_t count, prompt_events;
  uint32_t prompt_done, prompt_total;
  size_t stop_after; /* tokens; 0: never */
  int no_logprobs;
} heard;

static void append(char* to, size_t room, const mf_event* event) {
  const size_t length = strlen(to);
  EXPECT(length + event->text_bytes < room);
  memcpy(to + length, event->text, event->text_bytes);
  to[length + event->text_bytes] = '\0';
}

static int hear(void* user, const mf_event* event) {
  heard* const h = (heard*)user;
  EXPECT(event->struct_size == sizeof(mf_event));
  switch (event->kind) {
    case MF_EVENT_PROMPT:
      ++h->prompt_events;
      h->prompt_done = event->done;
      h->prompt_total = event->total;
      break;
    case MF_EVENT_TOKEN:
      EXPECT(h->count < 1024);
      EXPECT(h->no_logprobs ? event->logprob != event->logprob : event->logprob <= 0);
      h->tokens[h->count++] = event->token;
      append(h->bytes, sizeof h->bytes, event);
      break;
    case MF_EVENT_TEXT: append(h->text, sizeof h->text, event); break;
    case MF_EVENT_REASONING: append(h->reasoning, sizeof h->reasoning, event); break;
    case MF_EVENT_TOOL_CALL:
      EXPECT(strlen(event->name) < sizeof h->tool);
      strcpy(h->tool, event->name);
      append(h->arguments, sizeof h->arguments, event);
      break;
  }
  return h->stop_after != 0 && h->count >= h->stop_after;
}

static mf_generate_options greedy(const char* messages, const char* tools) {
  mf_generate_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.messages = messages;
  options.tools = tools;
  options.greedy = 1;
  options.logprobs = 1;
  return options;
}

static mf_generate_result generate(mf_session* session, const mf_text* text,
                                   const mf_generate_options* options, heard* h) {
  mf_generate_result result;
  memset(&result, 0, sizeof result);
  result.struct_size = sizeof result;
  EXPECT_OK(mf_generate(session, text, options, hear, h, &result, &why));
  return result;
}

static heard* new_heard(void) {
  heard* const h = (heard*)calloc(1, sizeof(heard));
  EXPECT(h != NULL);
  return h;
}

static size_t read_ids(const char* text, uint32_t* ids) {
  size_t count = 0;
  for (const char* at = text; *at != '\0'; ++at) {
    if (*at < '0' || *at > '9') continue;
    char* end;
    ids[count++] = (uint32_t)strtoul(at, &end, 10);
    at = end - 1;
  }
  return count;
}

static void a_greedy_reply_is_that_of_the_reference(mf_session* session, const mf_text* text,
                                                    const char* messages, const char* tools,
                                                    const char* ids_text, const char* reply) {
  uint32_t ids[1024];
  const size_t count = read_ids(ids_text, ids);
  mf_generate_options options = greedy(messages, tools);
  heard* const parsed = new_heard();
  const mf_generate_result first = generate(session, text, &options, parsed);
  EXPECT(parsed->count == count && memcmp(parsed->tokens, ids, count * sizeof ids[0]) == 0);
  EXPECT(first.reply_tokens == count && first.stop == -1);
  EXPECT(parsed->prompt_done == parsed->prompt_total && parsed->prompt_total == first.prompt_tokens);
  EXPECT(mf_session_position(session) == first.prompt_tokens + count);
  if (strstr(reply, "<tool_call>") != NULL) {
    EXPECT(first.finish == MF_FINISH_TOOL_CALLS);
    EXPECT(parsed->tool[0] != '\0' && parsed->arguments[0] == '{');
    EXPECT(parsed->text[0] == '\0');
  } else {
    EXPECT(first.finish == MF_FINISH_END);
    EXPECT(strcmp(parsed->text, reply) == 0);
  }

  heard* const raw = new_heard();
  options.raw_reply = 1;
  const mf_generate_result again = generate(session, text, &options, raw);
  EXPECT(strcmp(raw->text, reply) == 0);
  EXPECT(again.reused_tokens > 0 && again.reused_tokens < again.prompt_tokens);
  free(parsed);
  free(raw);
}

static void a_reply_ends_where_its_caller_wants(mf_session* session, const mf_text* text,
                                                const char* messages, const char* tools) {
  mf_generate_options options = greedy(messages, tools);
  options.raw_reply = 1;
  heard* const whole = new_heard();
  generate(session, text, &options, whole);
  EXPECT(whole->count >= 4);

  heard* h = new_heard();
  options.max_tokens = 2;
  options.logprobs = 0;
  h->no_logprobs = 1;
  EXPECT(generate(session, text, &options, h).finish == MF_FINISH_LENGTH);
  EXPECT(h->count == 2 && strncmp(whole->text, h->text, strlen(h->text)) == 0);
  options.max_tokens = 0;
  options.logprobs = 1;
  free(h);

  h = new_heard();
  h->stop_after = 3;
  EXPECT(generate(session, text, &options, h).finish == MF_FINISH_CANCELLED);
  EXPECT(h->count == 3);
  free(h);

  h = new_heard();
  char stop[4] = {whole->text[2], whole->text[3], whole->text[4], '\0'};
  const char* const stops[] = {"never said at all", stop};
  options.stop = stops;
  options.stop_count = 2;
  const mf_generate_result stopped = generate(session, text, &options, h);
  EXPECT(stopped.finish == MF_FINISH_STOP && stopped.stop == 1);
  EXPECT(strlen(h->text) == (size_t)(strstr(whole->text, stop) - whole->text));
  EXPECT(strncmp(h->text, whole->text, strlen(h->text)) == 0);
  options.stop = NULL;
  options.stop_count = 0;
  free(h);

  h = new_heard();
  mf_cancel* const cancel = mf_cancel_new();
  EXPECT(cancel != NULL);
  mf_cancel_request(cancel);
  options.cancel = cancel;
  const mf_generate_result cancelled = generate(session, text, &options, h);
  EXPECT(cancelled.finish == MF_FINISH_CANCELLED && h->count == 0);
  mf_cancel_free(cancel);
  free(h);
  free(whole);
}

static void a_seed_is_a_text(mf_session* session, const mf_text* text, const char* messages) {
  mf_generate_options options = greedy(messages, NULL);
  options.greedy = 0;
  options.temperature = 1.5;
  options.top_k = 50;
  options.max_tokens = 20;
  heard *const first = new_heard(), *const second = new_heard(), *const third = new_heard();
  const mf_generate_result free_choice = generate(session, text, &options, first);
  EXPECT(free_choice.seed != 0);
  options.seed = free_choice.seed;
  EXPECT(generate(session, text, &options, second).seed == free_choice.seed);
  EXPECT(strcmp(first->text, second->text) == 0);
  options.json_object = 1;
  options.max_tokens = 60;
  generate(session, text, &options, third);
  EXPECT(strchr(" \t\n\r{", third->text[0]) != NULL);
  free(first);
  free(second);
  free(third);
}

static void tokens_and_text_become_each_other(const mf_text* text) {
  static const char words[] = "Hello <|im_end|> na\xc3\xafve";
  uint32_t tokens[64];
  char back[64];
  size_t count = 0, special = 0, bytes = 0;
  EXPECT_OK(mf_text_tokenize(text, words, strlen(words), 0, tokens, 64, &count, &why));
  EXPECT(count > 0);
  EXPECT_OK(mf_text_detokenize(text, tokens, count, 0, back, sizeof back, &bytes, &why));
  EXPECT(bytes == strlen(words) && memcmp(back, words, bytes) == 0);
  EXPECT_OK(mf_text_tokenize(text, words, strlen(words), 1, tokens, 64, &special, &why));
  EXPECT(special < count);
  EXPECT(mf_text_tokenize(text, words, strlen(words), 0, tokens, 1, &special, &why) == MF_BUFFER_TOO_SMALL);
  EXPECT(special == count);
  EXPECT(mf_text_detokenize(text, tokens, 1, 0, NULL, 0, &bytes, &why) == MF_BUFFER_TOO_SMALL && bytes > 0);
  EXPECT_OK(mf_text_tokenize(text, NULL, 0, 0, NULL, 0, &count, &why));
  EXPECT(count == 0);
}

static void a_prompt_can_be_a_text_or_tokens(mf_session* session, const mf_text* text) {
  static const char words[] = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n";
  uint32_t tokens[64];
  size_t count = 0;
  EXPECT_OK(mf_text_tokenize(text, words, strlen(words), 1, tokens, 64, &count, &why));
  heard *const of_text = new_heard(), *const of_tokens = new_heard();
  mf_generate_options options = greedy(NULL, NULL);
  options.prompt = words;
  EXPECT(generate(session, text, &options, of_text).prompt_tokens == count);
  options.prompt = NULL;
  options.tokens = tokens;
  options.token_count = count;
  EXPECT(generate(session, text, &options, of_tokens).prompt_tokens == count);
  EXPECT(strlen(of_text->text) > 0 && strcmp(of_text->text, of_tokens->text) == 0);
  free(of_text);
  free(of_tokens);
}

static void what_makes_no_sense_is_refused(mf_session* session, const mf_text* text) {
  mf_text* none = NULL;
  EXPECT(mf_text_open("/nowhere", &none, &why) == MF_NOT_FOUND && none == NULL);
  EXPECT(mf_text_open(NULL, &none, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_text_open(".", NULL, &why) == MF_INVALID_ARGUMENT);
  mf_text_close(NULL);
  size_t count = 0;
  EXPECT(mf_text_tokenize(NULL, "a", 1, 0, NULL, 0, &count, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_text_tokenize(text, NULL, 1, 0, NULL, 0, &count, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_text_detokenize(text, NULL, 0, 0, NULL, 0, NULL, &why) == MF_INVALID_ARGUMENT);
  mf_generate_options options = greedy(NULL, NULL);
  EXPECT(mf_generate(session, text, &options, NULL, NULL, NULL, &why) == MF_INVALID_ARGUMENT);
  options.messages = "{}";
  EXPECT(mf_generate(session, text, &options, NULL, NULL, NULL, &why) == MF_CORRUPT_DATA);
  options.messages = "[{\"role\":\"user\",\"content\":\"a\"}]";
  options.prompt = "a";
  EXPECT(mf_generate(session, text, &options, NULL, NULL, NULL, &why) == MF_INVALID_ARGUMENT);
  options.prompt = NULL;
  options.top_p = 7;
  EXPECT(mf_generate(session, text, &options, NULL, NULL, NULL, &why) == MF_INVALID_ARGUMENT);
  EXPECT(strstr(why.text, "top_p") != NULL);
  options.top_p = 0;
  options.template_kwargs = "[]";
  EXPECT(mf_generate(session, text, &options, NULL, NULL, NULL, &why) == MF_INVALID_ARGUMENT);
  options.template_kwargs = "{\"enable_thinking\":false}";
  options.max_tokens = 1;
  EXPECT_OK(mf_generate(session, text, &options, NULL, NULL, NULL, &why));
  EXPECT(mf_generate(NULL, text, &options, NULL, NULL, NULL, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_generate(session, NULL, &options, NULL, NULL, NULL, &why) == MF_INVALID_ARGUMENT);
  EXPECT(mf_generate(session, text, NULL, NULL, NULL, NULL, &why) == MF_INVALID_ARGUMENT);
  mf_generate_result small;
  memset(&small, 0, sizeof small);
  EXPECT(mf_generate(session, text, &options, NULL, NULL, &small, &why) == MF_INVALID_ARGUMENT);
}

int main(int argc, char** argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: use_text PACKED MESSAGES TOOLS IDS REPLY\n");
    return 2;
  }
  char *const messages = read_file(argv[2]), *const tools_text = read_file(argv[3]);
  char *const ids = read_file(argv[4]), *const reply = read_file(argv[5]);
  const char* const tools = tools_text[0] == '\0' ? NULL : tools_text;
  mf_engine_options engine_options;
  memset(&engine_options, 0, sizeof engine_options);
  engine_options.struct_size = sizeof engine_options;
  engine_options.packed_model = argv[1];
  engine_options.precision = "exact";
  mf_engine* engine;
  mf_session* session;
  mf_text* text;
  EXPECT_OK(mf_engine_open(&engine_options, &engine, &why));
  EXPECT_OK(mf_session_open(engine, NULL, &session, &why));
  EXPECT_OK(mf_text_open(argv[1], &text, &why));
  a_greedy_reply_is_that_of_the_reference(session, text, messages, tools, ids, reply);
  a_reply_ends_where_its_caller_wants(session, text, messages, tools);
  a_seed_is_a_text(session, text, messages);
  tokens_and_text_become_each_other(text);
  a_prompt_can_be_a_text_or_tokens(session, text);
  what_makes_no_sense_is_refused(session, text);
  mf_text_close(text);
  mf_session_close(session);
  mf_engine_close(engine);
  free(messages);
  free(tools_text);
  free(ids);
  free(reply);
  printf("the text half of moeflux.h was used\n");
  return 0;
}
