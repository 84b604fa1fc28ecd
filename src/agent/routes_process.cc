#include <boost/asio/post.hpp>
#include <charconv>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/routes.h"
#include "agent/signals.h"
#include "base/encoding.h"

namespace space::agent {
namespace {

constexpr std::size_t kStdinPiece = 64 << 10;
constexpr auto kKeepalive = std::chrono::seconds(10);
constexpr std::size_t kShownArguments = 512;  // of a command line in a listing
constexpr std::int64_t kLongestLimit_ms = 31LL * 86'400'000;
constexpr std::size_t kMostArguments = 4096, kLongestArgument = (128 << 10) - 1;

Result<std::vector<std::string>> read_argv(JsonReader& r) {
  std::vector<std::string> argv = r.texts("argv", kMostArguments, kLongestArgument);
  const auto shell = r.optional_text("shell", kLongestArgument);
  TRY_VOID(r.done());
  if (shell.has_value() == !argv.empty() || (shell && shell->empty()) || (!argv.empty() && argv[0].empty()))
    return fail(ErrorKind::invalid_argument, "invalid_command",
                "a command is either argv, whose first part is the program, or a shell line", "give one of the two");
  if (shell) {
    // Not a login shell: its profile would override the environment that was asked for, and might read from stdin.
    const bool bash = ::access("/bin/bash", X_OK) == 0;
    argv = {bash ? "/bin/bash" : "/bin/sh", "-c", *shell};
  }
  for (const std::string& part : argv)
    if (part.find('\0') != std::string::npos)
      return fail(ErrorKind::invalid_argument, "invalid_command", "a command line cannot hold a NUL",
                  "hand such bytes on through a file or standard input");
  return argv;
}

std::optional<TerminalSize> read_size(JsonReader& r) {
  TerminalSize size;
  size.rows = static_cast<std::uint16_t>(r.number("rows", 1, 65'535));
  size.cols = static_cast<std::uint16_t>(r.number("cols", 1, 65'535));
  return size;
}

Result<Command> read_command(Agent& agent, const json::object& object) {
  JsonReader r(object);
  r.ignore_unknown();
  Command command;
  TRY(command.argv, read_argv(r));
  command.session = r.text("session", 0, 128, "");
  const Environment env = r.text_map("env", 4096, 128 << 10);
  const std::string user = r.text("user", 0, 256, "");
  std::string cwd = r.text("cwd", 0, 4095, "");
  command.stdin_open = r.boolean("stdin", false);
  if (const json::object* pty = r.object("pty")) {
    JsonReader p(*pty, "pty");
    command.terminal = read_size(p);
    TRY_VOID(p.done());
  }
  if (const auto limit = r.optional_number("time_limit_ms", 1, kLongestLimit_ms)) command.time_limit = std::chrono::milliseconds(*limit);
  command.grace = std::chrono::milliseconds(r.number("grace_ms", 0, 600'000, 2'000));
  TRY_VOID(r.done());
  TRY_VOID(check_environment(env));
  TRY(command.user, agent.find_user(user));
  command.identity = agent.accounts.current()->identity(command.user);
  command.cwd_optional = cwd.empty();
  if (cwd.empty()) cwd = agent.settings.default_cwd.empty() ? command.user.home : agent.settings.default_cwd;
  TRY(command.cwd, absolute_path(cwd, command.user));
  command.env = merge_environment(agent.settings, command.user, env, command.terminal.has_value());
  return command;
}

json::object info_json(Process& process) {
  const Command& command = process.command();
  json::array argv;
  std::size_t shown = 0;
  for (const std::string& part : command.argv) {
    if (shown >= kShownArguments) break;
    argv.emplace_back(part.size() > kShownArguments - shown ? std::string_view("…") : std::string_view(part));
    shown += part.size() + 1;
  }
  static constexpr std::string_view kStates[] = {"created", "running", "running", "exited"};  // starting is running to others
  json::object out{{"process", process.number()},
                   {"session", command.session},
                   {"state", kStates[static_cast<int>(process.state())]},
                   {"pid", process.pid()},
                   {"argv", std::move(argv)},
                   {"user", command.user.name},
                   {"cwd", command.cwd},
                   {"pty", command.terminal.has_value()},
                   {"started_ms", process.started_ms()},
                   {"first_sequence", process.window().first()},
                   {"last_sequence", process.window().last()}};
  if (const auto& exit = process.exit())
    out["exit"] =
        json::object{{"code", exit->code}, {"signal", exit->signal}, {"timed_out", exit->timed_out}, {"core_dumped", exit->core_dumped}};
  return out;
}

Result<std::shared_ptr<Process>> find_process(Agent& agent, const http::Exchange& exchange) {
  const std::string& text = exchange.param("process");
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return fail(ErrorKind::not_found, "process_not_found", "the number of a process is digits", "list those that there are");
  return agent.processes.find(number);
}

Task<> create_process(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const json::object object, co_await read_json(exchange));
  CO_TRY(Command command, read_command(agent, object));
  CO_TRY(const std::shared_ptr<Process> process, agent.processes.create(std::move(command)));
  json::object answer{{"process", process->number()}};
  co_return co_await reply_json(exchange, 201, std::move(answer));
}

Task<> list_processes(Agent& agent, http::Exchange& exchange) {
  json::array list;
  for (const auto& process : agent.processes.list()) list.push_back(info_json(*process));
  json::object answer{{"processes", std::move(list)}};
  co_return co_await reply_json(exchange, 200, std::move(answer));
}

Task<> get_process(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::shared_ptr<Process> process, find_process(agent, exchange));
  co_return co_await reply_json(exchange, 200, info_json(*process));
}

// Sends frames until the exit frame was sent.
Task<> send_frames(Agent& agent, http::Exchange& exchange, Process& process, OutputWindow::Reader& reader) {
  static const std::string keepalive = wire::encode_frame({wire::FrameType::keepalive, 0, {}});
  std::string batch;
  for (;;) {
    // What became ready in the same turn of the loop, the exit perhaps, comes into the same batch.
    co_await asio::post(agent.executor, asio::use_awaitable);
    batch.clear();
    if (reader.take(batch, OutputWindow::kBatch)) {
      CO_TRY_VOID(co_await exchange.write(as_bytes(batch)));
      continue;
    }
    // The connection is cut, so that nobody takes a part for the whole; one that attaches again is told what is still there.
    if (reader.lost())
      co_return fail(ErrorKind::conflict, "outside_window", "the reader stalled, and output that it has not got has left the window",
                     "attach again after the last sequence that came");
    if (process.state() == ProcessState::exited) co_return co_await exchange.finish();
    if (!co_await reader.news.wait_until(std::chrono::steady_clock::now() + kKeepalive))
      CO_TRY_VOID(co_await exchange.write(as_bytes(keepalive)));
  }
}

Task<> attach(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::shared_ptr<Process> process, find_process(agent, exchange));
  CO_TRY(const std::uint64_t after, query_number(exchange.target(), "after", std::numeric_limits<std::int64_t>::max(), 0));
  CO_TRY_VOID(co_await exchange.read_body(4096));
  CO_TRY_VOID(process->window().check(after));
  CO_TRY_VOID(co_await process->start());
  CO_TRY_VOID(process->window().check(after));  // it may have slid meanwhile
  OutputWindow::Reader reader(process->window(), agent.executor, after);
  http::Headers headers{{"Content-Type", "application/octet-stream"}};
  CO_TRY_VOID(co_await exchange.start(200, std::move(headers)));
  co_return co_await http::until_disconnected(exchange, send_frames(agent, exchange, *process, reader));
}

Task<> send_stdin(Agent& agent, http::Exchange& exchange) {
  exchange.set_read_timeout(std::chrono::milliseconds(0));  // a person may think for as long as they like
  CO_TRY(const std::shared_ptr<Process> process, find_process(agent, exchange));
  CO_TRY(const bool close, query_flag(exchange.target(), "close"));
  CO_TRY(Process::StdinTurn turn, co_await process->stdin_turn());
  std::vector<std::byte> piece(std::min<std::uint64_t>(exchange.content_length().value_or(kStdinPiece), kStdinPiece));
  while (!piece.empty()) {
    CO_TRY(const std::size_t size, co_await exchange.read(piece));
    if (size == 0) break;
    CO_TRY_VOID(co_await turn.write(std::span(piece).first(size)));
  }
  if (close) CO_TRY_VOID(co_await turn.close());
  co_return co_await reply_json(exchange, 200, {});
}

Task<> send_signal(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::shared_ptr<Process> process, find_process(agent, exchange));
  CO_TRY(const json::object object, co_await read_json(exchange, 4096));
  JsonReader r(object);
  r.ignore_unknown();
  const std::string name = r.text("signal", 1, 16);
  CO_TRY_VOID(r.done());
  const auto number = signal_number(name);
  if (!number)
    co_return fail(ErrorKind::invalid_argument, "unknown_signal", fmt::format("there is no signal {}", name),
                   "use a name such as TERM, or its number");
  CO_TRY_VOID(process->signal(*number));
  co_return co_await reply_json(exchange, 200, {});
}

Task<> resize(Agent& agent, http::Exchange& exchange) {
  CO_TRY(const std::shared_ptr<Process> process, find_process(agent, exchange));
  CO_TRY(const json::object object, co_await read_json(exchange, 4096));
  JsonReader r(object);
  r.ignore_unknown();
  const auto size = read_size(r);
  CO_TRY_VOID(r.done());
  CO_TRY_VOID(process->resize(*size));
  co_return co_await reply_json(exchange, 200, {});
}

}  // namespace

void add_process_routes(http::Router& router, Agent& agent) {
  router.add("POST", "/v1/processes", [&agent](http::Exchange& x) { return create_process(agent, x); });
  router.add("GET", "/v1/processes", [&agent](http::Exchange& x) { return list_processes(agent, x); });
  router.add("GET", "/v1/processes/{process}", [&agent](http::Exchange& x) { return get_process(agent, x); });
  router.add("POST", "/v1/processes/{process}/attach", [&agent](http::Exchange& x) { return attach(agent, x); });
  router.add("POST", "/v1/processes/{process}/stdin", [&agent](http::Exchange& x) { return send_stdin(agent, x); });
  router.add("POST", "/v1/processes/{process}/signal", [&agent](http::Exchange& x) { return send_signal(agent, x); });
  router.add("POST", "/v1/processes/{process}/resize", [&agent](http::Exchange& x) { return resize(agent, x); });
}

}  // namespace space::agent
