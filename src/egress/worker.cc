#include "egress/worker.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "egress/egress.h"
#include "egress/jail.h"

namespace space::egress {
namespace {

constexpr std::chrono::seconds kCountersEvery{2};
constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error"};

std::string text_at(const json::object& body, std::string_view key) {
  const auto* value = body.if_contains(key);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::vector<std::string> texts_at(const json::object& body, std::string_view key) {
  std::vector<std::string> out;
  if (const auto* value = body.if_contains(key); value && value->is_array())
    for (const json::value& item : value->get_array())
      if (item.is_string()) out.emplace_back(item.get_string());
  return out;
}

// What guests and upstreams together make it keep ends this worker, which another follows, and not the machine. (A sanitizer's own maps are
// larger than any limit.)
void limit_memory() {
#ifndef SPACE_SANITIZED
  const auto machine = static_cast<rlim_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const rlim_t most = std::max<rlim_t>(machine / 4, 1ULL << 30);
  const rlimit data{most, most};
  if (::setrlimit(RLIMIT_DATA, &data) != 0)
    log::warn("egress.memory_not_limited", {{"error", fail_errno(errno, "limit the worker's memory").value()}});
#endif
}

json::object counters_json(const Counters& c, const Budget& budget, std::size_t open) {
  return {{"connections", c.connections}, {"open", open},           {"requests", c.requests},
          {"denied", c.denied},           {"bytes_up", c.bytes_up}, {"bytes_down", c.bytes_down},
          {"total_bytes", budget.total()}};
}

// What the sandbox has of the outside; what was refused is in the counters alone.
json::object traffic_json(const Sandbox& sandbox, const Counters& c) {
  return {{"open", sandbox.open_outside()}, {"connections", c.dialled}, {"bytes", c.outside}};
}

}  // namespace

Worker::Worker(asio::any_io_executor executor, std::unique_ptr<Channel> channel) : executor_(executor), channel_(std::move(channel)) {
  services_.executor = executor_;
  services_.credentials = &credentials_;
  services_.authorities = &authorities_;
  services_.tell = [this](json::object body) {
    Message message;
    message.body = std::move(body);
    return channel_->send(std::move(message));
  };
  services_.told = [this] { return channel_->flushed(); };
}

Worker::~Worker() = default;

asio::awaitable<void> Worker::run() {
  spawn(executor_, report_counters());
  for (;;) {
    auto message = co_await channel_->receive();
    if (!message) {
      if (message.error().code != "peer_closed") log::error("egress.channel", {{"error", message.error()}});
      co_return;
    }
    auto outcome = take(*message);
    Message reply;
    if (outcome)
      reply.body = std::move(*outcome);
    else
      reply.body["error"] = json::object{{"code", outcome.error().code}, {"message", outcome.error().message}};
    reply.body["type"] = "done";
    reply.body["call"] = message->body["call"];
    if (!channel_->send(std::move(reply))) co_return;
    if (!outcome && !dialer_) {
      log::error("egress.worker_failed", {{"error", outcome.error()}});
      co_return;
    }
  }
}

Result<json::object> Worker::take(Message& message) {
  const std::string type = text_at(message.body, "type");
  const std::string id = text_at(message.body, "sandbox");
  if (type == "start") {
    TRY_VOID(start(message.body));
  } else if (type == "sandbox") {
    TRY_VOID(set_sandbox(message.body));
  } else if (type == "sockets") {
    if (message.fds.size() != 3) return fail(ErrorKind::internal, "bad_count", "a sandbox has three sockets");
    TRY_VOID(sandbox(id)->serve(std::move(message.fds)));
  } else if (type == "detach") {
    if (const auto found = sandboxes_.find(id); found != sandboxes_.end()) found->second->detach();
  } else if (type == "remove") {
    if (const auto found = sandboxes_.find(id); found != sandboxes_.end()) {
      found->second->detach();
      sandboxes_.erase(found);
    }
  } else if (type == "sync") {
    // The answer alone is wanted.
  } else if (type == "observed") {
    return sandbox(id)->observed().to_json();
  } else if (type == "credential") {
    credentials_.set(text_at(message.body, "name"), std::move(message.secret));
  } else if (type == "forget_credential") {
    credentials_.forget(text_at(message.body, "name"));
  } else if (type == "authority") {
    TRY(auto authority, Authority::load(text_at(message.body, "certificate"), message.secret));
    authorities_.set(text_at(message.body, "lineage"), std::move(authority));
  } else if (type == "forget_authority") {
    authorities_.forget(text_at(message.body, "lineage"));
  } else if (type == "own") {
    std::set<Address> own;
    for (const std::string& text : texts_at(message.body, "addresses"))
      if (auto address = Address::parse(text)) own.insert(*address);
    dialer_->set_own_addresses(std::move(own));
  } else {
    return fail(ErrorKind::internal, "unknown_message", "the parent sent something unknown");
  }
  return json::object();
}

Result<> Worker::start(const json::object& body) {
  Dialer::Options options;
  for (const std::string& text : texts_at(body, "resolvers")) {
    TRY(Endpoint server, parse_endpoint(text));
    options.resolver.servers.push_back(server);
  }
  for (const std::string& text : texts_at(body, "allowed_ranges")) {
    TRY(Cidr range, Cidr::parse(text));
    options.allowed_ranges.push_back(range);
  }
  TRY(upstream_tls_, UpstreamTls::make(text_at(body, "ca_file")));
  services_.upstream_tls = upstream_tls_.get();
  // All that is on disk has been read.
  TRY_VOID(enter_worker_jail());
  dialer_ = std::make_unique<Dialer>(executor_, std::move(options));
  services_.dialer = dialer_.get();
  return {};
}

std::shared_ptr<Sandbox> Worker::sandbox(const std::string& id) {
  auto& entry = sandboxes_[id];
  if (!entry) entry = std::make_shared<Sandbox>(services_, id);
  return entry;
}

Result<> Worker::set_sandbox(const json::object& body) {
  const auto entry = sandbox(text_at(body, "sandbox"));
  if (const auto* names = body.if_contains("names"); names && names->is_object()) {
    TRY(NameMap map, NameMap::parse(names->get_object()));
    entry->names() = std::move(map);
  }
  if (const auto* total = body.if_contains("total_bytes"); total && total->is_int64())
    entry->budget().restore_total(static_cast<std::uint64_t>(total->get_int64()));
  auto settings = std::make_shared<Settings>();
  if (const auto* document = body.if_contains("settings"); document && document->is_object()) {
    auto parsed = Settings::parse(document->get_object());
    if (!parsed) {
      // The parent has checked it; should this process read it differently, then nothing is allowed.
      entry->update(std::move(settings));
      return fail(std::move(parsed).error());
    }
    *settings = std::move(*parsed);
  }
  entry->update(std::move(settings));
  return {};
}

asio::awaitable<void> Worker::report_counters() {
  std::map<std::string, std::string> last;
  for (;;) {
    co_await sleep_for(kCountersEvery);
    for (const auto& [id, entry] : sandboxes_) {
      json::object counters = counters_json(entry->counters(), entry->budget(), entry->open_connections());
      json::object traffic = traffic_json(*entry, entry->counters());
      std::string text = json::serialize(counters) + json::serialize(traffic);
      if (std::exchange(last[id], text) == text) continue;
      services_.tell({{"type", "counters"}, {"sandbox", id}, {"counters", std::move(counters)}, {"traffic", std::move(traffic)}});
    }
    std::erase_if(last, [this](const auto& entry) { return !sandboxes_.contains(entry.first); });
  }
}

int run_worker(Fd channel, std::string_view log_level) {
  const auto level = std::find(std::begin(kLevels), std::end(kLevels), log_level) - std::begin(kLevels);
  log::configure("egress-worker", level < 4 ? static_cast<log::Level>(level) : log::Level::info);
  std::signal(SIGPIPE, SIG_IGN);
  // Neither core files nor a debugger of the same account get at the secrets.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0)
    return 1;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  limit_memory();
  // Buffers of tens of kilobytes come and go with every piece that passes: their memory is not given back and faulted in each time.
  ::mallopt(M_TRIM_THRESHOLD, 8 << 20);
  ::mallopt(M_TOP_PAD, 1 << 20);
  asio::io_context loop(1);
  auto made = Channel::make(loop.get_executor(), std::move(channel));
  if (!made) {
    log::error("egress.worker_failed", {{"error", made.error()}});
    return 1;
  }
  Worker worker(loop.get_executor(), std::move(*made));
  asio::co_spawn(loop, worker.run(), [&loop](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
    loop.stop();
  });
  loop.run();
  ::_exit(0);  // what still waits in the loop goes with the process
}

}  // namespace space::egress
