/* Sessions of the host: what each request does. Every answer ends with "ok" or with "fail KIND MESSAGE". */
#ifndef DMLPREP_SESSION_H
#define DMLPREP_SESSION_H

struct line;

/* 0 when ONNX Runtime does not start. */
int session_start(const char *models, const char *exchange);

/* Options, feeds, wanted outputs and pairs to keep are noted until the next load, run or hold. */
void session_option(const char *key, const char *value);
void session_feed(const struct line *line);
void session_feed_sequence(const char *name, int count);
void session_want(const char *name);
void session_keep(const struct line *line);

void session_load(int number, const char *model);
void session_run(int number);
void session_hold(int number, const char *how);
void session_step(int number);
void session_bind(int number);
void session_time(int number, const char *how, int count, double seconds);
void session_memory(void);
void session_placement(int number);
void session_timings(int number);
void session_close(int number);

#endif
