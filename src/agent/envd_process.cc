// E2B's process.Process: what its clients start, follow, feed and end. A process lives on when its client goes; whoever connects
// later gets what is written from then on. Times and limits are those of docs/e2b.md.
#include <boost/asio/post.hpp>
#include <charconv>
#include <csignal>
#include <fmt/format.h>

#include "agent/envd.h"
#include "agent/envd_connect.h"
#include "base/encoding.h"

namespace space::agent {
namespace {

using connect::StreamWriter;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using EnvdPtr = std::shared_ptr<Envd>;
using ProcessPtr = std::shared_ptr<Process>;

constexpr std::string_view kSession = "envd";  // of every process that was started here
constexpr seconds kKeptFor{30};                // an ended process can still be connected to
constexpr std::int64_t kUsualKeepalive = 90, kLongestKeepalive = 3600;
constexpr std::int64_t kLongestTimeout_ms = 31LL * 86'400'000;
constexpr std::size_t kMostArguments = 4096, kLongestArgument = (128 << 10) - 1;

auto internal(std::string message) { return fail(ErrorKind::internal, "internal", std::move(message)); }

std::optional<std::int64_t> header_number(const http::Exchange& exchange, std::string_view name) {
  const std::string_view text = exchange.headers().get(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

std::optional<milliseconds> timeout_of(const http::Exchange& exchange) {
  const auto value = header_number(exchange, "Connect-Timeout-Ms");
  if (!value) return std::nullopt;
  return milliseconds(std::min(*value, kLongestTimeout_ms));
}

seconds keepalive_of(const http::Exchange& exchange) {
  return seconds(std::min(header_number(exchange, "Keepalive-Ping-Interval").value_or(kUsualKeepalive), kLongestKeepalive));
}

// Of Go's syscall.Signal, as E2B's users see them.
std::string signal_text(int number, bool core) {
  static constexpr std::string_view kNames[] = {"",
                                                "hangup",
                                                "interrupt",
                                                "quit",
                                                "illegal instruction",
                                                "trace/breakpoint trap",
                                                "aborted",
                                                "bus error",
                                                "floating point exception",
                                                "killed",
                                                "user defined signal 1",
                                                "segmentation fault",
                                                "user defined signal 2",
                                                "broken pipe",
                                                "alarm clock",
                                                "terminated"};
  const std::string name = number > 0 && number < 16 ? std::string(kNames[number]) : fmt::format("signal {}", number);
  return fmt::format("signal: {}{}", name, core ? " (core dumped)" : "");
}

std::string end_event(const wire::ProcessExit& exit) {
  json::object end;
  if (exit.signal != 0) {
    const std::string text = signal_text(exit.signal, exit.core_dumped);
    end = {{"exitCode", -1}, {"exited", false}, {"status", text}, {"error", text}};
  } else {
    const std::string text = fmt::format("exit status {}", exit.code);
    end = {{"exitCode", exit.code}, {"exited", true}, {"status", text}};
    if (exit.code != 0) end["error"] = text;
  }
  return fmt::format(R"({{"event":{{"end":{}}}}})", json::serialize(end));
}

std::string start_event(pid_t pid) { return fmt::format(R"({{"event":{{"start":{{"pid":{}}}}}}})", pid); }

std::string data_event(const wire::Frame& frame) {
  const std::string_view name = frame.type == wire::FrameType::stdout_bytes   ? "stdout"
                                : frame.type == wire::FrameType::stderr_bytes ? "stderr"
                                                                              : "pty";
  return fmt::format(R"({{"event":{{"data":{{"{}":"{}"}}}}}})", name, base64_encode(as_bytes(frame.payload)));
}

// "pid" or "tag" of a selector, found among what was started here.
Result<ProcessPtr> select(Envd& envd, const json::object& request) {
  std::erase_if(envd.started, [](const auto& one) { return one.second.process.expired(); });
  JsonReader outer(request);
  outer.ignore_unknown();
  const json::object* selector = outer.object("process");
  TRY_VOID(outer.done());
  if (!selector) return invalid("a process must be named by its pid or its tag");
  JsonReader r(*selector, "process");
  r.ignore_unknown();
  const auto pid = r.optional_number("pid", 0, std::numeric_limits<std::uint32_t>::max());
  const auto tag = r.optional_text("tag", 4096);
  TRY_VOID(r.done());
  ProcessPtr ended;
  for (const auto& [number, one] : envd.started) {
    const ProcessPtr process = one.process.lock();
    if (!process || (tag ? one.tag != tag : process->pid() != pid.value_or(0)) || process->pid() == 0) continue;
    if (process->state() == ProcessState::running) return process;
    if (process->state() == ProcessState::exited && Clock::now() - process->ended_at() < kKeptFor) ended = process;
  }
  if (ended) return ended;
  return fail(ErrorKind::not_found, "not_found",
              tag ? fmt::format("process with tag {} not found", *tag) : fmt::format("process with pid {} not found", pid.value_or(0)));
}

Result<ProcessPtr> select_running(Envd& envd, const json::object& request) {
  TRY(ProcessPtr process, select(envd, request));
  if (process->state() == ProcessState::exited)
    return fail(ErrorKind::not_found, "not_found", fmt::format("process with pid {} not found", process->pid()));
  return process;
}

// Sends what the reader gets until the process ends or `until` has come. `limited`: then the process is ended by its own limit.
Task<> follow(EnvdPtr envd, StreamWriter& writer, ProcessPtr process, OutputWindow::Reader& reader, seconds keepalive,
              Clock::time_point until) {
  wire::FrameReader frames;
  std::string batch;
  for (;;) {
    co_await asio::post(envd->agent.executor, asio::use_awaitable);  // what is ready in this turn comes into one batch
    batch.clear();
    if (reader.take(batch, OutputWindow::kBatch)) {
      CO_TRY(const std::vector<wire::Frame> some, frames.feed(batch));
      bool over = false, late = false;
      for (const wire::Frame& frame : some) {
        if (frame.type == wire::FrameType::start) {
          writer.add(start_event(process->pid()));
        } else if (frame.type == wire::FrameType::exit) {
          CO_TRY(const wire::ProcessExit exit, wire::decode_exit(frame.payload));
          over = true;
          late = exit.timed_out;
          if (!late) writer.add(end_event(exit));
        } else if (frame.type != wire::FrameType::dropped) {
          writer.add(data_event(frame));
        }
      }
      if (late) co_return fail(ErrorKind::deadline_exceeded, "deadline_exceeded", "the command ran longer than its timeout and was killed");
      CO_TRY_VOID(co_await writer.flush());
      if (over) co_return Result<>();
      continue;
    }
    if (reader.lost())
      co_return fail(ErrorKind::conflict, "data_loss", "output of the command was not read for too long, and a part of it is lost");
    if (process->state() == ProcessState::exited) co_return Result<>();
    const auto next = std::min(Clock::now() + keepalive, until);
    if (co_await reader.news.wait_until(next)) continue;
    if (Clock::now() >= until)
      co_return fail(ErrorKind::deadline_exceeded, "deadline_exceeded", "the stream was open for as long as was asked for");
    writer.add(R"({"event":{"keepalive":{}}})");
    CO_TRY_VOID(co_await writer.flush());
  }
}

Result<TerminalSize> read_size(const json::object& pty) {
  JsonReader outer(pty, "pty");
  outer.ignore_unknown();
  const json::object* object = outer.object("size");
  TRY_VOID(outer.done());
  TerminalSize size;
  if (!object) return size;
  JsonReader r(*object, "size");
  r.ignore_unknown();
  size.rows = static_cast<std::uint16_t>(std::max<std::int64_t>(1, r.number("rows", 0, 65'535, size.rows)));
  size.cols = static_cast<std::uint16_t>(std::max<std::int64_t>(1, r.number("cols", 0, 65'535, size.cols)));
  TRY_VOID(r.done());
  return size;
}

struct StartRequest {
  Command command;
  Envd::Started started;
};

Result<StartRequest> read_start(Envd& envd, const http::Exchange& exchange, const json::object& request) {
  JsonReader outer(request);
  outer.ignore_unknown();
  const json::object* config = outer.object("process");
  const json::object* pty = outer.object("pty");
  StartRequest out;
  out.started.tag = outer.optional_text("tag", 4096);
  out.command.stdin_open = outer.boolean("stdin", true);
  TRY_VOID(outer.done());
  if (!config) return invalid("process must say what to start");
  JsonReader r(*config, "process");
  r.ignore_unknown();
  std::string program = r.text("cmd", 1, kLongestArgument);
  std::vector<std::string> arguments = r.texts("args", kMostArguments, kLongestArgument);
  const Environment env = r.text_map("envs", 4096, 128 << 10);
  const std::string cwd = r.text("cwd", 0, 4095, "");
  TRY_VOID(r.done());
  TRY_VOID(check_environment(env));
  Command& command = out.command;
  command.argv = {std::move(program)};
  std::move(arguments.begin(), arguments.end(), std::back_inserter(command.argv));
  for (const std::string& part : command.argv)
    if (part.find('\0') != std::string::npos) return invalid("a command line cannot hold a NUL");
  TRY(const EnvdUser who, envd_user(envd.agent, exchange));
  command.user = who.user;
  command.identity = who.accounts->identity(who.user);
  command.session = kSession;
  command.cwd_optional = cwd.empty();
  TRY(command.cwd, envd_path(envd.agent, who.user, cwd));
  if (pty) {
    TRY(command.terminal, read_size(*pty));
    command.stdin_open = true;
  }
  command.env = merge_environment(envd.agent.settings, who.user, env, pty != nullptr);
  command.time_limit = timeout_of(exchange);
  command.grace = milliseconds(0);  // killed, not asked
  out.started.config = *config;
  return out;
}

Task<> start(EnvdPtr envd, http::Exchange& exchange, const json::object& request, StreamWriter& writer) {
  CO_TRY(StartRequest wanted, read_start(*envd, exchange, request));
  const std::string cwd = wanted.command.cwd;
  CO_TRY(const ProcessPtr process, envd->agent.processes.create(std::move(wanted.command)));
  wanted.started.process = process;
  std::erase_if(envd->started, [](const auto& one) { return one.second.process.expired(); });
  envd->started.insert_or_assign(process->number(), std::move(wanted.started));
  auto begun = co_await process->start();
  if (!begun && begun.error().code == "no_such_directory") co_return invalid(fmt::format("cwd '{}' does not exist", cwd));
  if (!begun) co_return invalid(begun.error().message);
  OutputWindow::Reader reader(process->window(), envd->agent.executor, 0);
  co_return co_await follow(envd, writer, process, reader, keepalive_of(exchange), Clock::time_point::max());
}

Task<> connect_to(EnvdPtr envd, http::Exchange& exchange, const json::object& request, StreamWriter& writer) {
  CO_TRY(const ProcessPtr process, select(*envd, request));
  writer.add(start_event(process->pid()));
  if (const auto& exit = process->exit()) {
    writer.add(end_event(*exit));
    co_return co_await writer.flush();
  }
  OutputWindow::Reader reader(process->window(), envd->agent.executor, process->window().last());
  CO_TRY_VOID(co_await writer.flush());
  const auto limit = timeout_of(exchange);
  co_return co_await follow(envd, writer, process, reader, keepalive_of(exchange),
                            limit ? Clock::now() + *limit : Clock::time_point::max());
}

json::object list(Envd& envd) {
  std::erase_if(envd.started, [](const auto& one) { return one.second.process.expired(); });
  json::array all;
  for (const auto& [number, one] : envd.started) {
    const ProcessPtr process = one.process.lock();
    if (!process || process->state() != ProcessState::running) continue;
    json::object info{{"config", one.config}, {"pid", process->pid()}};
    if (one.tag) info["tag"] = *one.tag;
    all.push_back(std::move(info));
  }
  return {{"processes", std::move(all)}};
}

// {"stdin": base64} or {"pty": base64}, into the process.
Task<> put_input(ProcessPtr process, const json::object& input) {
  JsonReader r(input, "input");
  r.ignore_unknown();
  const auto plain = r.optional_text("stdin", connect::kMostMessage), typed = r.optional_text("pty", connect::kMostMessage);
  CO_TRY_VOID(r.done());
  if (plain.has_value() == typed.has_value()) co_return invalid("input is either stdin or pty");
  const auto bytes = base64_decode(plain ? *plain : *typed);
  if (!bytes) co_return invalid("input must be base64");
  const bool terminal = process->command().terminal.has_value();
  if (typed && !terminal) co_return internal("the process has no terminal");
  if (plain && terminal) co_return internal("the process has a terminal: send pty input");
  auto turn = co_await process->stdin_turn();
  if (!turn) co_return internal("error writing to stdin: stdin not enabled or closed");
  auto written = co_await turn->write(as_bytes(*bytes));
  if (!written) co_return internal("error writing to stdin: stdin not enabled or closed");
  co_return written;
}

Task<json::object> send_input(EnvdPtr envd, http::Exchange& exchange, const json::object& request) {
  CO_TRY(const ProcessPtr process, select_running(*envd, request));
  JsonReader r(request);
  r.ignore_unknown();
  const json::object* input = r.object("input");
  CO_TRY_VOID(r.done());
  if (!input) co_return invalid("input is missing");
  CO_TRY_VOID(co_await http::until_disconnected(exchange, put_input(process, *input)));
  co_return json::object();
}

// One message of the client stream. `process` is set by the first.
Task<> take_piece(EnvdPtr envd, const json::object& message, ProcessPtr& process) {
  JsonReader r(message);
  r.ignore_unknown();
  const json::object* first = r.object("start");
  const json::object* data = r.object("data");
  CO_TRY_VOID(r.done());
  if (first) {
    CO_TRY(process, select_running(*envd, *first));
    co_return Result<>();
  }
  if (!data) co_return Result<>();  // a keepalive
  if (!process) co_return invalid("the stream must begin with start");
  JsonReader d(*data, "data");
  d.ignore_unknown();
  const json::object* input = d.object("input");
  CO_TRY_VOID(d.done());
  if (!input) co_return invalid("data has no input");
  co_return co_await put_input(process, *input);
}

Task<json::object> stream_input(EnvdPtr envd, http::Exchange& exchange) {
  exchange.set_read_timeout(milliseconds(0));  // what a person types
  connect::EnvelopeReader reader;
  ProcessPtr process;
  std::vector<std::byte> piece(64 << 10);
  for (;;) {
    CO_TRY(const std::size_t size, co_await exchange.read(piece));
    if (size == 0) break;
    CO_TRY(const std::vector<connect::Envelope> messages, reader.feed(as_text(std::span(piece).first(size))));
    for (const connect::Envelope& message : messages) {
      if (message.last) continue;
      CO_TRY(const json::object object, connect::read_message(exchange, message.payload));
      CO_TRY_VOID(co_await take_piece(envd, object, process));
    }
  }
  if (!reader.between()) co_return invalid("the stream ended inside a message");
  co_return json::object();
}

Task<json::object> close_stdin(EnvdPtr envd, http::Exchange&, const json::object& request) {
  CO_TRY(const ProcessPtr process, select_running(*envd, request));
  if (process->command().terminal)
    co_return fail(ErrorKind::internal, "unknown", "a terminal's input cannot be closed; send the character for the end of file");
  auto turn = co_await process->stdin_turn();
  if (turn) (void)co_await turn->close();  // closed already: that is what was asked for
  co_return json::object();
}

Result<json::object> send_signal(Envd& envd, const json::object& request) {
  TRY(const ProcessPtr process, select_running(envd, request));
  const json::value* given = request.if_contains("signal");
  int number = 0;
  if (given && (*given == json::value("SIGNAL_SIGTERM") || *given == json::value(15))) number = SIGTERM;
  if (given && (*given == json::value("SIGNAL_SIGKILL") || *given == json::value(9))) number = SIGKILL;
  if (number == 0) return fail(ErrorKind::unsupported, "unimplemented", "only SIGNAL_SIGTERM and SIGNAL_SIGKILL can be sent");
  auto sent = process->signal(number);
  if (!sent && sent.error().kind == ErrorKind::gone)
    return fail(ErrorKind::not_found, "not_found", fmt::format("process with pid {} not found", process->pid()));
  if (!sent) return tl::unexpected(std::move(sent).error());
  return json::object();
}

Result<json::object> update(Envd& envd, const json::object& request) {
  TRY(const ProcessPtr process, select_running(envd, request));
  JsonReader r(request);
  r.ignore_unknown();
  const json::object* pty = r.object("pty");
  TRY_VOID(r.done());
  if (!pty) return json::object();
  if (!process->command().terminal) return internal("tty not assigned to process");
  TRY(const TerminalSize size, read_size(*pty));
  TRY_VOID(process->resize(size));
  return json::object();
}

}  // namespace

void add_envd_process_routes(http::Router& router, const EnvdPtr& envd) {
  const std::string service = "/process.Process/";
  using json::object;
  connect::add_server_stream(router, service + "Start",
                             [envd](http::Exchange& x, const object& request, StreamWriter& w) { return start(envd, x, request, w); });
  connect::add_server_stream(router, service + "Connect",
                             [envd](http::Exchange& x, const object& request, StreamWriter& w) { return connect_to(envd, x, request, w); });
  connect::add_client_stream(router, service + "StreamInput", [envd](http::Exchange& x) { return stream_input(envd, x); });
  connect::add_unary(router, service + "SendInput",
                     [envd](http::Exchange& x, const object& request) { return send_input(envd, x, request); });
  connect::add_unary(router, service + "CloseStdin",
                     [envd](http::Exchange& x, const object& request) { return close_stdin(envd, x, request); });
  connect::add_unary(router, service + "List", [envd](http::Exchange&, const object&) -> Task<object> { co_return list(*envd); });
  connect::add_unary(router, service + "SendSignal",
                     [envd](http::Exchange&, const object& request) -> Task<object> { co_return send_signal(*envd, request); });
  connect::add_unary(router, service + "Update",
                     [envd](http::Exchange&, const object& request) -> Task<object> { co_return update(*envd, request); });
}

}  // namespace space::agent
