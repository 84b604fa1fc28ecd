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

// Runs one command in a sandbox of its own. The delete is recorded before we go, so the server finishes it without us.
Task<int> run_and_delete(Context& context, CreateOptions create, CommandOptions command, OnInterrupt on_interrupt, bool keep) {
  if (create.time_limit_s == 0 && !keep) create.time_limit_s = kLongestRun;
  CO_TRY(const json::object sandbox, co_await create_sandbox(context, std::move(create)));
  const std::string id = text_of(sandbox, "id");
  auto status = co_await run_command(context, id, std::move(command), on_interrupt);
  if (keep) {
    context.console.note(fmt::format("space: sandbox {} goes on", id));
    co_return status;
  }
  const std::string target = TargetBuilder("/v1/sandboxes").segment(id).str();
  auto deleted = co_await context.api.send("DELETE", target);
  if (status && !deleted && deleted.error().kind != ErrorKind::not_found) context.console.error(deleted.error());
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
