#include "cli/session.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/file.h"
#include "cli/event_stream.h"
#include "cli/exit_status.h"
#include "cli/standard_input.h"
#include "cli/terminal.h"

namespace space::cli {
namespace {

// Shared with the coroutines that may outlive the command by a moment.
struct Session {
  std::string target;  // /v1/sandboxes/ID/commands/SESSION
  bool over = false;
  int interrupts = 0;
  std::optional<EventStream> stream;
};

asio::awaitable<void> post_quietly(Context& context, std::string target, json::object body) {
  (void)co_await context.api.send("POST", std::move(target), std::move(body));
}

asio::awaitable<void> kill_quietly(Context& context, std::string target) { (void)co_await context.api.send("DELETE", std::move(target)); }

asio::awaitable<void> watch_signals(Context& context, std::shared_ptr<Session> session, std::shared_ptr<asio::signal_set> signals,
                                    OnInterrupt on_interrupt) {
  for (;;) {
    boost::system::error_code error;
    const int signal = co_await signals->async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (error || session->over) co_return;
    if (signal == SIGWINCH) {
      const TerminalSize size = terminal_size();
      json::object body = {{"rows", size.rows}, {"cols", size.columns}};
      spawn(context.executor, post_quietly(context, session->target + "/resize", std::move(body)));
      continue;
    }
    const int count = ++session->interrupts;
    if (on_interrupt == OnInterrupt::forward && count == 1) {
      json::object body = {{"signal", signal == SIGINT ? "INT" : signal == SIGTERM ? "TERM" : "HUP"}};
      spawn(context.executor, post_quietly(context, session->target + "/signal", std::move(body)));
      continue;
    }
    if (count <= 2) co_await kill_quietly(context, session->target);
    if (session->over) co_return;
    session->stream->cancel();
  }
}

int status_of(const json::object& exit) {
  const json::value* timed_out = exit.if_contains("timed_out");
  if (timed_out && timed_out->is_bool() && timed_out->get_bool()) return kTimedOut;
  const json::value* signal = exit.if_contains("signal");
  if (signal && signal->is_int64() && signal->get_int64() > 0) return kSignalBase + static_cast<int>(signal->get_int64() & 0x7f);
  return static_cast<int>(number_of(exit, "code", kOwnError) & 0xff);
}

Result<json::object> command_body(const CommandOptions& options, bool stdin_open) {
  json::object body;
  if (!options.shell.empty())
    body["command"] = options.shell;
  else
    body["argv"] = json::array(options.argv.begin(), options.argv.end());
  if (!options.cwd.empty()) body["cwd"] = options.cwd;
  if (!options.user.empty()) body["user"] = options.user;
  TRY(json::object env, env_object(options.env));
  if (options.tty) {
    const TerminalSize size = terminal_size();
    body["pty"] = {{"rows", size.rows}, {"cols", size.columns}};
    const char* kind = std::getenv("TERM");
    if (!env.contains("TERM")) env["TERM"] = kind && *kind ? kind : "xterm-256color";
  }
  if (!env.empty()) body["env"] = std::move(env);
  if (options.time_limit_s > 0) body["time_limit_ms"] = static_cast<std::int64_t>(std::ceil(options.time_limit_s * 1000));
  body["stdin"] = stdin_open;
  return body;
}

Task<> write_out(Context& context, int fd, std::string bytes) {
  auto work = [fd, bytes = std::move(bytes)]() -> Result<> {
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const ssize_t count = ::write(fd, rest.data(), rest.size());
      if (count > 0) rest.remove_prefix(static_cast<std::size_t>(count));
      if (count >= 0 || errno == EINTR) continue;
      if (errno != EAGAIN) return fail_errno(errno, fd == STDOUT_FILENO ? "write to standard output" : "write to standard error");
      pollfd wait{fd, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    }
    return {};
  };
  co_return co_await context.pool.run(work);
}

}  // namespace

Result<json::object> env_object(const std::vector<std::string>& pairs) {
  json::object out;
  for (const std::string& pair : pairs) {
    const auto equals = pair.find('=');
    const std::string name = pair.substr(0, equals);
    if (name.empty())
      return fail(ErrorKind::invalid_argument, "bad_env", fmt::format("\"{}\" names no variable", pair), "write -e NAME=value");
    if (equals != std::string::npos)
      out[name] = pair.substr(equals + 1);
    else if (const char* own = std::getenv(name.c_str()))
      out[name] = own;
  }
  return out;
}

Task<std::optional<int>> show_event(Context& context, const http::SseEvent& event) {
  CO_TRY(const json::object data, parse_json_object(event.data, 4 << 20));
  // A terminal's bytes are for a terminal; everything else can be read by a program as well.
  if (context.console.as_json() && event.event != "pty") {
    CO_TRY_VOID(co_await write_out(context, STDOUT_FILENO, json::serialize(event_object(event)) + "\n"));
    co_return event.event == "exit" ? std::optional<int>(status_of(data)) : std::nullopt;
  }
  if (event.event == "exit") co_return std::optional<int>(status_of(data));
  if (event.event == "dropped") {
    context.console.note(fmt::format("space: {} bytes of output were dropped here", number_of(data, "bytes")));
  } else if (event.event == "stdout" || event.event == "stderr" || event.event == "pty") {
    auto bytes = base64_decode(text_of(data, "data"));
    if (!bytes) co_return fail(ErrorKind::internal, "bad_event", "the server sent output that is not base64");
    const int to = event.event == "stderr" ? STDERR_FILENO : STDOUT_FILENO;
    CO_TRY_VOID(co_await write_out(context, to, std::move(*bytes)));
  }
  co_return std::optional<int>();
}

Task<int> run_command(Context& context, std::string sandbox, CommandOptions options, OnInterrupt on_interrupt,
                      std::shared_ptr<asio::signal_set> signals) {
  const bool stdin_open = !options.no_stdin && (options.tty || stdin_is_piped());
  CO_TRY(json::object body, command_body(options, stdin_open));
  const std::string commands = TargetBuilder("/v1/sandboxes").segment(sandbox).segment("commands").str();

  // Before the command exists, so that no Ctrl-C is lost in between.
  if (!signals) signals = std::make_shared<asio::signal_set>(context.executor, SIGINT, SIGTERM, SIGHUP);
  if (options.tty) signals->add(SIGWINCH);
  CO_TRY(const json::object created, co_await context.api.send("POST", commands, std::move(body)));

  auto session = std::make_shared<Session>();
  session->target = TargetBuilder(commands).segment(text_of(created, "session")).str();
  EventStreamOptions until_exit;
  until_exit.last_event = "exit";
  session->stream.emplace(context.api, session->target + "/attach", until_exit);
  spawn(context.executor, watch_signals(context, session, signals, on_interrupt));

  std::optional<RawTerminal> raw;
  if (options.tty) raw.emplace();
  std::shared_ptr<StandardInput> input;
  Result<int> outcome = kOwnError;
  for (;;) {
    auto event = co_await session->stream->next();
    if (!event || !*event) {
      if (!event) outcome = tl::unexpected(event.error());
      break;
    }
    if (stdin_open && !input) {
      input = std::make_shared<StandardInput>(context, session->target + "/stdin");
      input->start();
    }
    auto shown = co_await show_event(context, **event);
    if (!shown) {  // nobody takes the output any more
      co_await kill_quietly(context, session->target);
      outcome = shown.error().code == "connection_lost" ? Result<int>(kSignalBase + SIGPIPE) : tl::unexpected(shown.error());
      break;
    }
    if (*shown) outcome = **shown;
  }
  session->over = true;
  if (input) input->stop();
  signals->cancel();
  raw.reset();
  if (session->interrupts > 0 && (on_interrupt == OnInterrupt::kill || session->interrupts > 1)) co_return kInterrupted;
  co_return outcome;
}

}  // namespace space::cli
