#include "wire/agent_client.h"

#include <array>
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/json.h"

namespace space::wire {
namespace {

constexpr std::size_t kAnswerLimit = 64 << 10;
constexpr std::size_t kListLimit = 8 << 20;  // some 1,300 processes with long command lines
constexpr std::size_t kMostProcesses = 4096;
// The agent sends a frame at least every 10 s; one that is silent for much longer is hung, paused or gone.
constexpr std::chrono::milliseconds kLongestSilence{45'000};
constexpr std::chrono::milliseconds kTimeForTheEnd{500};

// What the agent answers is hostile: a wrong shape is the agent's fault and not the caller's.
Error agent_fault(std::string_view what) {
  return Error{ErrorKind::unavailable, "agent_protocol_error", fmt::format("the agent's answer is not understood: {}", what),
               "delete the sandbox: its agent cannot be trusted to work"};
}

template <class T>
Result<T> checked(Result<T> result) {
  if (!result) return fail(agent_fault(result.error().message));
  return result;
}

Result<json::object> answer_object(const http::Response& response, std::size_t limit = kAnswerLimit) {
  return checked(parse_json_object(response.body, limit));
}

http::Request post(std::string target, json::object body = {}) {
  http::Request request;
  request.method = "POST";
  request.target = std::move(target);
  request.headers.set("Content-Type", "application/json");
  request.body = json::serialize(body);
  return request;
}

http::Request request_for(std::string target) {
  http::Request request;
  request.target = std::move(target);
  return request;
}

json::object to_json(const std::map<std::string, std::string>& map) {
  json::object out;
  for (const auto& [key, value] : map) out.emplace(key, value);
  return out;
}

json::object to_json(PtySize size) { return {{"rows", size.rows}, {"cols", size.cols}}; }

json::object to_json(const ProcessSpec& spec) {
  json::object out;
  out["session"] = spec.session;
  if (spec.shell)
    out["shell"] = *spec.shell;
  else
    out["argv"] = json::value_from(spec.argv);
  if (!spec.cwd.empty()) out["cwd"] = spec.cwd;
  if (!spec.env.empty()) out["env"] = to_json(spec.env);
  if (!spec.user.empty()) out["user"] = spec.user;
  out["stdin"] = spec.stdin_open;
  if (spec.pty) out["pty"] = to_json(*spec.pty);
  if (spec.time_limit) out["time_limit_ms"] = spec.time_limit->count();
  out["grace_ms"] = spec.grace.count();
  return out;
}

Result<ProcessExit> read_exit(const json::object& object) {
  JsonReader r(object, "exit");
  r.ignore_unknown();
  ProcessExit exit;
  exit.code = static_cast<std::int32_t>(r.number("code", -1, 255));
  exit.signal = static_cast<std::uint8_t>(r.number("signal", 0, 64, 0));
  exit.timed_out = r.boolean("timed_out", false);
  exit.core_dumped = r.boolean("core_dumped", false);
  TRY_VOID(r.done());
  return exit;
}

Result<ProcessInfo> read_info(const json::object& object) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  JsonReader r(object, "process");
  r.ignore_unknown();
  ProcessInfo info;
  info.process = static_cast<std::uint32_t>(r.number("process", 1, std::numeric_limits<std::uint32_t>::max()));
  info.session = r.text("session", 0, 128, "");
  info.state = r.text("state", 1, 16);
  if (info.state != "created" && info.state != "running" && info.state != "exited") r.reject("state", "must be created, running or exited");
  info.pid = static_cast<std::uint32_t>(r.number("pid", 0, std::numeric_limits<std::int32_t>::max(), 0));
  info.argv = r.texts("argv", kMostProcesses, kAnswerLimit);
  info.user = r.text("user", 0, 256, "");
  info.cwd = r.text("cwd", 0, 16384, "");
  info.pty = r.boolean("pty", false);
  info.started_ms = r.number("started_ms", 0, kMost, 0);
  info.first_sequence = static_cast<std::uint64_t>(r.number("first_sequence", 0, kMost, 1));
  info.last_sequence = static_cast<std::uint64_t>(r.number("last_sequence", 0, kMost, 0));
  const json::object* exit = r.object("exit");
  TRY_VOID(r.done());
  if (exit) {
    TRY(info.exit, read_exit(*exit));
  }
  return info;
}

Result<std::vector<ProcessInfo>> read_list(const json::object& object) {
  JsonReader r(object);
  r.ignore_unknown();
  const json::array* items = r.array("processes", kMostProcesses);
  TRY_VOID(r.done());
  std::vector<ProcessInfo> list;
  if (!items) return list;
  for (const json::value& item : *items) {
    if (!item.is_object()) return fail(ErrorKind::invalid_argument, "invalid_field", "processes must hold objects");
    TRY(ProcessInfo info, read_info(item.get_object()));
    list.push_back(std::move(info));
  }
  return list;
}

class HttpProcessStream : public ProcessStream {
 public:
  HttpProcessStream(std::unique_ptr<http::ClientStream> stream, std::uint64_t after) : stream_(std::move(stream)), last_(after) {}

  Task<std::vector<Frame>> next() override {
    std::vector<Frame> frames;
    while (frames.empty() && !ended_) {
      CO_TRY(const std::size_t size, co_await stream_->read(buffer_));
      if (size == 0)
        co_return fail(ErrorKind::unavailable, "agent_stream_cut", "the agent ended the stream before the process had ended",
                       "attach again from the last sequence");
      CO_TRY(std::vector<Frame> some, reader_.feed(as_text(std::span(buffer_).first(size))));
      for (Frame& frame : some) {
        if (frame.type == FrameType::keepalive) continue;
        if (frame.sequence <= last_) co_return fail(agent_fault(fmt::format("sequence {} again", frame.sequence)));
        last_ = frame.sequence;
        ended_ = frame.type == FrameType::exit;
        frames.push_back(std::move(frame));
      }
    }
    // The end of the answer, which comes with the exit, is read as well: then its connection can carry the next request.
    if (ended_ && !drained_) {
      drained_ = true;
      stream_->set_body_timeout(kTimeForTheEnd);
      (void)co_await stream_->read(buffer_);
    }
    co_return frames;
  }
  void cancel() override { stream_->cancel(); }

 private:
  std::unique_ptr<http::ClientStream> stream_;
  FrameReader reader_;
  std::array<std::byte, 64 << 10> buffer_;
  std::uint64_t last_;
  bool ended_ = false;
  bool drained_ = false;
};

}  // namespace

struct AgentClient::State {
  http::Client client;
};

AgentClient::AgentClient(asio::any_io_executor executor, http::Connector connector) {
  http::ClientOptions options;
  options.host = "agent";
  options.idle_time = std::chrono::hours(1);  // a VM in the ready pool is met with its connection standing; the agent waits longer
  state_ = std::make_unique<State>(State{http::Client(std::move(executor), std::move(connector), std::move(options))});
}
AgentClient::~AgentClient() = default;

http::Client& AgentClient::http() { return state_->client; }
void AgentClient::reset() { state_->client.close_idle(); }

Task<AgentHealth> AgentClient::health() {
  http::Request request = request_for("/v1/health");
  CO_TRY(const http::Response response, co_await state_->client.call(std::move(request), kAnswerLimit));
  CO_TRY(const json::object object, answer_object(response));
  JsonReader r(object);
  r.ignore_unknown();
  AgentHealth health;
  health.version = r.text("version", 1, 64);
  health.protocol = static_cast<int>(r.number("protocol", 1, 1 << 20));
  health.boot_id = r.text("boot_id", 1, 64);
  health.loads = static_cast<std::uint64_t>(r.number("loads", 0, std::numeric_limits<std::int64_t>::max()));
  CO_TRY_VOID(checked(r.done()));
  co_return health;
}

Task<> AgentClient::init(const AgentInit& init) {
  json::object body{{"nonce", init.nonce},           {"sandbox_id", init.sandbox_id}, {"hostname", init.hostname},
                    {"machine_id", init.machine_id}, {"wall_ns", init.wall_ns},       {"entropy", base64_encode(as_bytes(init.entropy))},
                    {"env", to_json(init.env)},      {"epoch", init.epoch},           {"loaded", init.loaded}};
  if (!init.ca.empty()) body["ca"] = init.ca;
  http::Request request = post("/v1/init", std::move(body));
  CO_TRY(const http::Response response, co_await state_->client.call(std::move(request), kAnswerLimit));
  CO_TRY(const json::object object, answer_object(response));
  JsonReader r(object);
  r.ignore_unknown();
  const std::string nonce = r.text("nonce", 1, 256);
  CO_TRY_VOID(checked(r.done()));
  if (nonce != init.nonce) co_return fail(agent_fault("it repeats another nonce"));
  co_return Result<>{};
}

Task<> AgentClient::freeze() {
  http::Request request = post("/v1/freeze");
  CO_TRY_VOID(co_await state_->client.call(std::move(request), kAnswerLimit));
  co_return Result<>{};
}

Task<> AgentClient::set_environment(std::map<std::string, std::string> env) {
  http::Request request = post("/v1/environment", {{"env", to_json(env)}});
  request.method = "PUT";
  CO_TRY_VOID(co_await state_->client.call(std::move(request), kAnswerLimit));
  co_return Result<>{};
}

Task<> AgentClient::sync() {
  http::Request request = post("/v1/sync");
  CO_TRY_VOID(co_await state_->client.call(std::move(request), kAnswerLimit));
  co_return Result<>{};
}

Task<std::uint32_t> AgentClient::create(const ProcessSpec& spec) {
  http::Request request = post("/v1/processes", to_json(spec));
  CO_TRY(const http::Response response, co_await state_->client.call(std::move(request), kAnswerLimit));
  CO_TRY(const json::object object, answer_object(response));
  JsonReader r(object);
  r.ignore_unknown();
  const auto process = r.number("process", 1, std::numeric_limits<std::uint32_t>::max());
  CO_TRY_VOID(checked(r.done()));
  co_return static_cast<std::uint32_t>(process);
}

Task<std::unique_ptr<ProcessStream>> AgentClient::attach(std::uint32_t process, std::uint64_t after) {
  http::Request request = post(fmt::format("/v1/processes/{}/attach?after={}", process, after));
  request.body.clear();
  request.headers.remove("Content-Type");
  CO_TRY(std::unique_ptr<http::ClientStream> stream, co_await state_->client.open(std::move(request)));
  CO_TRY_VOID(co_await stream->finish_request());
  stream->set_body_timeout(kLongestSilence);
  CO_TRY(const http::Response head, co_await stream->head());
  if (head.status != 200) {
    CO_TRY(const std::string body, co_await stream->read_all(kAnswerLimit));
    co_return fail(http::error_from_response(head.status, body));
  }
  co_return std::make_unique<HttpProcessStream>(std::move(stream), after);
}

Task<std::vector<ProcessInfo>> AgentClient::list() {
  http::Request request = request_for("/v1/processes");
  CO_TRY(const http::Response response, co_await state_->client.call(std::move(request), kListLimit));
  CO_TRY(const json::object object, answer_object(response, kListLimit));
  co_return checked(read_list(object));
}

Task<ProcessInfo> AgentClient::get(std::uint32_t process) {
  http::Request request = request_for(fmt::format("/v1/processes/{}", process));
  CO_TRY(const http::Response response, co_await state_->client.call(std::move(request), kAnswerLimit));
  CO_TRY(const json::object object, answer_object(response));
  co_return checked(read_info(object));
}

Task<> AgentClient::signal(std::uint32_t process, const std::string& name) {
  http::Request request = post(fmt::format("/v1/processes/{}/signal", process), {{"signal", name}});
  CO_TRY_VOID(co_await state_->client.call(std::move(request), kAnswerLimit));
  co_return Result<>{};
}

Task<> AgentClient::resize(std::uint32_t process, PtySize size) {
  http::Request request = post(fmt::format("/v1/processes/{}/resize", process), to_json(size));
  CO_TRY_VOID(co_await state_->client.call(std::move(request), kAnswerLimit));
  co_return Result<>{};
}

Task<> AgentClient::forward(http::Exchange& exchange, std::string target, bool event_stream) {
  http::ProxyOptions options;
  options.target = std::move(target);
  options.event_stream = event_stream;
  co_return co_await http::forward(exchange, state_->client, std::move(options));
}

}  // namespace space::wire
