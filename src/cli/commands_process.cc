#include <signal.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/event_stream.h"
#include "cli/exit_status.h"
#include "cli/terminal.h"

namespace space::cli {
namespace {

// A sandbox that `run` left behind because its own process was killed ends by itself after this time.
constexpr std::uint64_t kLongestRun = 24 * 3600;

std::string commands_of(const std::string& sandbox) { return TargetBuilder("/v1/sandboxes").segment(sandbox).segment("commands").str(); }

std::string describe_argv(const json::object& command) {
  std::string out = text_of(command, "command");
  if (const json::array* argv = array_of(command, "argv"); argv && out.empty())
    for (const json::value& word : *argv)
      if (word.is_string()) out += (out.empty() ? "" : " ") + std::string(word.get_string());
  constexpr std::size_t kLongest = 60;
  return out.size() > kLongest ? out.substr(0, kLongest - 1) + "…" : out;
}

std::string describe_exit(const json::object& command) {
  const json::object* exit = object_of(command, "exit");
  if (!exit) return {};
  const auto signal = number_of(*exit, "signal");
  return signal > 0 ? fmt::format("signal {}", signal) : fmt::format("{}", number_of(*exit, "code"));
}

// Until the second of them from now on.
asio::awaitable<void> two_interrupts(asio::signal_set& signals) {
  boost::system::error_code error;
  for (int count = 0; count < 2 && !error; ++count) (void)co_await signals.async_wait(asio::redirect_error(asio::use_awaitable, error));
}

asio::awaitable<void> one_interrupt(asio::signal_set& signals, bool& interrupted) {
  boost::system::error_code error;
  (void)co_await signals.async_wait(asio::redirect_error(asio::use_awaitable, error));
  interrupted = interrupted || !error;
}

// One Ctrl-C does not stop what decides whether a sandbox is left; a second one, by somebody who waits for a server in vain, does.
Task<json::object> unless_given_up(Context& context, Task<json::object> work) {
  using namespace asio::experimental::awaitable_operators;
  asio::signal_set signals(context.executor, SIGINT, SIGTERM, SIGHUP);
  auto first = co_await (std::move(work) || two_interrupts(signals));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return fail(ErrorKind::cancelled, "interrupted", "left before the server had answered: a sandbox may be there",
                 "look with `space ls`, delete it with `space rm`; it ends by itself after its --ttl, or a day");
}

// The delete is recorded when it is answered: the server finishes it without us.
Task<> delete_own(Context& context, std::string id) {
  auto deleting = context.api.send("DELETE", TargetBuilder("/v1/sandboxes").segment(id).str());
  auto deleted = co_await unless_given_up(context, std::move(deleting));
  if (deleted || deleted.error().kind == ErrorKind::not_found) co_return Result<>();
  context.console.note(fmt::format("space: sandbox {} is not deleted", id));
  co_return tl::unexpected(deleted.error());
}

// Gives the id of a new sandbox that runs. It is known before the sandbox is made, so that a Ctrl-C meanwhile leaves none.
Task<std::string> make_own(Context& context, CreateOptions create, asio::signal_set& signals) {
  using namespace asio::experimental::awaitable_operators;
  Spinner spinner(context.executor, "creating a sandbox");
  auto asking = ask_for_sandbox(context, std::move(create), std::chrono::seconds(0));
  CO_TRY(const json::object answer, co_await unless_given_up(context, std::move(asking)));
  const std::string id = text_of(*object_of(answer, "sandbox"), "id");
  const json::object* operation = object_of(answer, "operation");
  if (!operation) co_return fail(ErrorKind::internal, "bad_answer", "the server answered a create without an operation");
  spinner.text("waiting for sandbox " + id);
  bool interrupted = false;
  auto making = context.api.finish(text_of(*operation, "id"));
  auto first = co_await (std::move(making) || one_interrupt(signals, interrupted));
  Result<json::object> made = first.index() == 0 ? std::get<0>(std::move(first)) : json::object();
  if (made && !interrupted) co_return id;
  auto deleted = co_await delete_own(context, id);
  if (!made) co_return tl::unexpected(made.error());
  if (!deleted) co_return tl::unexpected(deleted.error());
  co_return fail(ErrorKind::cancelled, "interrupted", fmt::format("interrupted while sandbox {} was made; it is deleted", id));
}

// Runs one command in a sandbox of its own.
Task<int> run_and_delete(Context& context, CreateOptions create, CommandOptions command, OnInterrupt on_interrupt, bool keep) {
  if (create.time_limit_s == 0 && !keep) create.time_limit_s = kLongestRun;
  // Before there is a sandbox, and until it is gone: a Ctrl-C that nobody waits for is kept for the next who does.
  auto signals = std::make_shared<asio::signal_set>(context.executor, SIGINT, SIGTERM, SIGHUP);
  CO_TRY(const std::string id, co_await make_own(context, std::move(create), *signals));
  auto status = co_await run_command(context, id, std::move(command), on_interrupt, signals);
  if (keep) {
    context.console.note(fmt::format("space: sandbox {} goes on", id));
    co_return status;
  }
  auto deleted = co_await delete_own(context, id);
  if (status && !deleted) context.console.error(deleted.error());
  co_return status;
}

}  // namespace

Task<int> run(Context& context, CreateOptions create, CommandOptions command, bool keep) {
  co_return co_await run_and_delete(context, std::move(create), std::move(command), OnInterrupt::kill, keep);
}

Task<int> exec(Context& context, std::string sandbox, CommandOptions command) {
  co_return co_await run_command(context, std::move(sandbox), std::move(command), OnInterrupt::forward);
}

Task<int> shell(Context& context, std::string sandbox, CreateOptions create, CommandOptions command) {
  command.tty = true;
  if (command.argv.empty()) command.shell = "if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi";
  if (sandbox.empty()) co_return co_await run_and_delete(context, std::move(create), std::move(command), OnInterrupt::forward, false);
  co_return co_await run_command(context, std::move(sandbox), std::move(command), OnInterrupt::forward);
}

Task<int> processes(Context& context, std::string sandbox) {
  CO_TRY(const json::array commands, co_await context.api.list(commands_of(sandbox), "commands"));
  if (context.console.as_json()) {
    context.console.value(commands);
    co_return 0;
  }
  Table table({"SESSION", "STATE", "EXIT", "PID", "USER", "AGE", "COMMAND"});
  for (const json::value& item : commands) {
    if (!item.is_object()) continue;
    const json::object& c = item.get_object();
    const auto pid = number_of(c, "pid");
    table.add({text_of(c, "session"), text_of(c, "state"), describe_exit(c), pid > 0 ? std::to_string(pid) : "", text_of(c, "user"),
               format_age(text_of(c, "started_at"), system_clock().wall_ms()), describe_argv(c)});
  }
  context.console.line(table.text());
  co_return 0;
}

Task<int> signal_command(Context& context, std::string sandbox, std::string session, std::string signal) {
  const std::string target = TargetBuilder(commands_of(sandbox)).segment(session).str();
  json::object answer;
  if (signal.empty() || signal == "KILL") {
    CO_TRY(answer, co_await context.api.send("DELETE", target));
  } else {
    json::object body = {{"signal", signal}};
    CO_TRY(answer, co_await context.api.send("POST", target + "/signal", std::move(body)));
  }
  if (context.console.as_json()) context.console.value(answer);
  co_return 0;
}

Task<int> logs(Context& context, std::string sandbox, std::string session, bool follow) {
  const std::string target = TargetBuilder(commands_of(sandbox)).segment(session).str();
  CO_TRY(const json::object command, co_await context.api.get(target));
  const std::string state = text_of(command, "state");
  // Attaching would start it, and looking must not.
  if (state == "created") co_return 0;
  std::string last;
  if (const json::object* window = object_of(command, "window")) last = text_of(*window, "last");
  EventStreamOptions options;
  options.last_event = "exit";
  EventStream stream(context.api, target + "/attach", options);
  for (;;) {
    CO_TRY(const std::optional<http::SseEvent> event, co_await stream.next());
    if (!event) co_return 0;
    CO_TRY_VOID(co_await show_event(context, *event));
    if (!follow && state == "running" && compare_event_ids(event->id, last).value_or(0) >= 0) co_return 0;
  }
}

}  // namespace space::cli
