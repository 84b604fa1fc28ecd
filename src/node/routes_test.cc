// node's API over real sockets, with an agent that says what the test wants it to say.
#include "node/routes.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/json.h"
#include "http/client.h"
#include "http/sse.h"
#include "node/access.h"
#include "node/testing.h"
#include "wire/file_signature.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using namespace testing;  // NOLINT

class OneBase : public BaseSource {
 public:
  Task<tmpl::Release> resolve(const std::string&) override { co_return tmpl::Release{}; }
  Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release&, const WantedSize&) override { co_return base_; }
  std::shared_ptr<const tmpl::Base> base_ = base_named("a");
};

class NoDriver : public vmm::Driver {
 public:
  std::string name() const override { return "fake"; }
  std::string accelerator() const override { return "none"; }
  std::string state_key() const override { return ""; }
  Task<std::unique_ptr<vmm::Vm>> spawn(vmm::VmSpec) override { co_return fail(ErrorKind::unsupported, "fake", ""); }
  Task<std::unique_ptr<vmm::Vm>> adopt(const std::string&) override { co_return fail(ErrorKind::unsupported, "fake", ""); }
  Task<std::vector<std::string>> list() override { co_return std::vector<std::string>{}; }
  Task<> sweep(const std::string&) override { co_return Result<>{}; }
  Task<> merge_generations(vmm::DiskMerge) override { co_return Result<>{}; }
};

// A guest's agent: the test replaces its handlers.
struct FakeAgent {
  http::Router router;
  std::vector<std::string> attached;  // targets
  int streams = 0;                    // open ones
  std::vector<wire::Frame> frames;    // what an attach sends; then it waits for the end of the connection, or ends with an exit
};

std::string frame_text(const FakeAgent& agent, std::uint64_t after) {
  std::string text;
  for (const wire::Frame& f : agent.frames)
    if (f.sequence > after) text += wire::encode_frame(f);
  return text;
}

Task<> fake_attach(http::Exchange& e, FakeAgent& agent) {
  agent.attached.push_back(e.target().raw);
  const std::uint64_t after = std::stoull(e.target().query_value("after").value_or("0"));
  if (after > 100) {
    const Error outside{ErrorKind::conflict, "outside_window", "not there first=5 last=9", ""};
    co_return co_await e.reply(http::problem(outside));
  }
  CO_TRY_VOID(co_await e.start(200, {}));
  const std::string text = frame_text(agent, after);
  CO_TRY_VOID(co_await e.write(as_bytes(text)));
  if (!agent.frames.empty() && agent.frames.back().type == wire::FrameType::exit) co_return co_await e.finish();
  ++agent.streams;
  co_await e.disconnected();
  --agent.streams;
  co_return Result<>{};
}

// What arrived at the agent.
Task<> show_request(http::Exchange& e, FakeAgent& agent) {
  std::string text = e.target().raw;
  for (const auto& [name, value] : e.headers().fields()) text += fmt::format("|{}: {}", name, value);
  agent.attached.push_back(text);
  http::Response response = http::json_response(200, "{}");
  response.headers.set("Set-Cookie", "a=b");
  co_return co_await e.reply(std::move(response));
}

struct World {
  explicit World(asio::io_context& loop)
      : executor(loop.get_executor()),
        agent_server(executor, [this](http::Exchange& e) { return agent.router(e); }),
        parts{executor, sandboxes, pools, events, templates, driver, disk, "0", "none", tokens, *vault, milliseconds(300)},
        server(executor, [this](http::Exchange& e) { return router(e); }),
        client(executor, http::unix_connector((dir.path() / "node.sock").string())) {
    EXPECT_TRUE(records.open());
    EXPECT_TRUE(agent_server.serve(listen_unix(dir.path() / "agent.sock", SOCK_STREAM, 0600).value()));
    machines.executor_ = executor;
    machines.agent_ = http::unix_connector((dir.path() / "agent.sock").string());
    agent.router.add("POST", "/v1/processes", [](http::Exchange& e) { return e.reply(http::json_response(201, R"({"process":7})")); });
    agent.router.add("POST", "/v1/processes/{n}/attach", [this](http::Exchange& e) { return fake_attach(e, agent); });
    router.use(peer_check(0));
    add_node_routes(router, parts);
    add_sandbox_routes(router, parts);
    add_command_routes(router, parts);
    add_file_routes(router, parts);
    add_envd_routes(router, parts);
    agent.router.add("GET", "/health", [](http::Exchange& e) { return e.reply({204, {}, {}}); });
    agent.router.add("GET", "/files", [this](http::Exchange& e) { return show_request(e, agent); });
    agent.router.add("POST", "/process.Process/List", [this](http::Exchange& e) { return show_request(e, agent); });
    EXPECT_TRUE(server.serve(listen_unix(dir.path() / "node.sock", SOCK_STREAM, 0600).value()));
  }

  Task<http::Response> send(std::string method, std::string target, std::string body = {}, std::string tenant = "acme") {
    http::Request request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.body = std::move(body);
    if (!tenant.empty()) request.headers.set("Space-Tenant", tenant);
    co_return co_await client.request(std::move(request));
  }
  asio::awaitable<std::string> code_of(std::string method, std::string target, std::string body = {}, std::string tenant = "acme") {
    auto answer = co_await send(std::move(method), std::move(target), std::move(body), std::move(tenant));
    if (!answer) co_return answer.error().code;
    if (answer->status < 400) co_return std::to_string(answer->status);
    co_return http::error_from_response(answer->status, answer->body).code;
  }
  asio::awaitable<std::string> create() {
    const std::string id = new_id();
    EXPECT_EQ(co_await code_of("PUT", "/v1/sandboxes/" + id, R"({"operation":"o","tenant":"acme","template":"base"})"), "200");
    co_return id;
  }
  asio::awaitable<json::object> command(std::string id) {
    const auto answer = co_await send("POST", "/v1/sandboxes/" + id + "/commands", R"({"argv":["true"]})");
    EXPECT_EQ(answer->status, 201) << answer->body;
    co_return parse_json_object(answer->body).value();
  }

  asio::any_io_executor executor;
  TempDir dir = TempDir::make("/tmp", "space-routes-test").value();
  TokenKey tokens = TokenKey::open(dir.path() / "token.key").value();
  RecordStore records{dir.path()};
  BlockingPool disk{2};
  std::unique_ptr<Vault> vault = vault_in(dir.path());
  FakeAgent agent;
  http::Server agent_server;
  FakeMachines machines{&records};
  OneBase bases;
  NoDriver driver;
  tmpl::TemplateStore templates{dir.path() / "templates"};
  Events events{executor};
  Pools pools{executor, machines, PoolLimits{}};
  Sandboxes sandboxes{executor, {machines, bases, pools, records, disk, events, system_clock(), *vault, std::string(64, 'b')}, 10};
  RouteParts parts;
  http::Router router;
  http::Server server;
  http::Client client;
};

struct RoutesTest : ::testing::Test {
  void run(asio::awaitable<void> (*test)(World&)) {
    asio::io_context loop;
    World world(loop);
    bool finished = false;
    asio::co_spawn(
        loop,
        [](World& w, auto body, bool& done) -> asio::awaitable<void> {
          co_await body(w);
          co_await w.server.stop(milliseconds(0));
          co_await w.agent_server.stop(milliseconds(0));
          done = true;
        }(world, test, finished),
        [](std::exception_ptr e) {
          if (e) std::rethrow_exception(e);
        });
    while (!finished && loop.run_one() > 0) {
    }
  }
};

wire::Frame frame(wire::FrameType type, std::uint64_t sequence, std::string payload) { return {type, sequence, std::move(payload)}; }
std::string attach_path(const std::string& id, const json::object& command) {
  return "/v1/sandboxes/" + id + "/commands/" + std::string(command.at("session").as_string()) + "/attach";
}

TEST_F(RoutesTest, RefusesBadRequestsWithoutTouchingAnything) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string good = R"({"operation":"o","tenant":"acme","template":"base"})";
    EXPECT_EQ(co_await w.code_of("PUT", "/v1/sandboxes/..%2f..%2fetc", good), "invalid_id");
    EXPECT_EQ(co_await w.code_of("PUT", "/v1/sandboxes/short", good), "invalid_id");
    const std::string path = "/v1/sandboxes/" + new_id();
    EXPECT_EQ(co_await w.code_of("PUT", path, "[]"), "invalid_json");
    EXPECT_EQ(co_await w.code_of("PUT", path, R"({"operation":"o","tenant":"a","surprise":1})"), "invalid_field");
    EXPECT_EQ(co_await w.code_of("PUT", path, R"({"operation":"o","tenant":"a","cpus":"2"})"), "invalid_field");
    EXPECT_EQ(co_await w.code_of("PUT", path, R"({"operation":"o","tenant":"a","env":{"A=B":"c"}})"), "invalid_field");
    EXPECT_EQ(co_await w.code_of("PUT", path, R"({"operation":"o","tenant":"a","hostname":"a b"})"), "invalid_field");
    EXPECT_EQ(co_await w.code_of("PUT", path, std::string(400, '[')), "json_too_deep");
    EXPECT_EQ(co_await w.code_of("PUT", path, "\"" + std::string(3 << 20, 'x') + "\""), "body_too_large");
    EXPECT_EQ(co_await w.code_of("DELETE", "/v1/sandboxes/x"), "200");
    EXPECT_TRUE(w.sandboxes.list().empty());
  });
}

TEST_F(RoutesTest, WhatTheStoreWantsKeptIsKept) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string id = new_id(), path = "/v1/sandboxes/" + id;
    EXPECT_EQ(co_await w.code_of("PUT", path, R"({"operation":"o","tenant":"acme","template":"base","kept":"first"})"), "200");
    EXPECT_EQ(w.sandboxes.find(id)->record.kept, "first");
    EXPECT_EQ(co_await w.code_of("PUT", path + "/kept", R"({"kept":"{\"a\":1}"})"), "200");
    const auto answer = co_await w.send("GET", path);
    const json::object body = parse_json_object(answer->body).value();
    EXPECT_EQ(body.at("kept").as_string(), R"({"a":1})");
    EXPECT_GT(body.at("created_ms").as_int64(), 0);
    const auto found = w.records.sandboxes();
    EXPECT_EQ(found->size(), 1u);
    EXPECT_EQ(found->front().record->kept, R"({"a":1})") << "durably";
    const auto list = co_await w.send("GET", "/v1/sandboxes");
    EXPECT_NE(list->body.find(digest_name(sha256(R"({"a":1})"))), std::string::npos);
    EXPECT_EQ(list->body.find("\"kept\""), std::string::npos) << "a list of thousands says that it is there, not what";
    const std::string longest(kMostKept, 'x'), with = R"({"operation":"o","tenant":"acme","template":"base","kept":")" + longest + "\"}";
    EXPECT_EQ(co_await w.code_of("PUT", "/v1/sandboxes/" + new_id(), with), "200");
    EXPECT_EQ(co_await w.code_of("PUT", path + "/kept", "{\"kept\":\"" + longest + "\"}"), "200");
    EXPECT_EQ(co_await w.code_of("PUT", path + "/kept", R"({"kept":"{\"a\":1}"})"), "200");
    const std::string longer = "{\"kept\":\"" + std::string(kMostKept + 1, 'x') + "\"}";
    EXPECT_EQ(co_await w.code_of("PUT", path + "/kept", longer), "invalid_field");
    EXPECT_EQ(co_await w.code_of("PUT", "/v1/sandboxes/" + new_id() + "/kept", R"({"kept":""})"), "sandbox_not_found");
    EXPECT_EQ(w.sandboxes.find(id)->record.kept, R"({"a":1})");
  });
}

// 128 KiB of environment are the api's to refuse; of characters that JSON writes in six they are 768.
TEST_F(RoutesTest, AnEnvironmentIsTakenWhateverIsInIt) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string id = new_id();
    json::object env;
    for (const char* name : {"A", "B", "C"}) env[name] = std::string(40 << 10, '\x1b');
    const json::object body{{"operation", "o"}, {"tenant", "acme"}, {"template", "base"}, {"env", std::move(env)}};
    EXPECT_EQ(co_await w.code_of("PUT", "/v1/sandboxes/" + id, json::serialize(body)), "200");
    EXPECT_EQ(w.records.sandboxes()->at(0).record->env.at("C").size(), 40u << 10) << "and it is read again";
  });
}

TEST_F(RoutesTest, TheInventoryTellsForHowLongASandboxRestedAndWhenItWorked) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string id = co_await w.create();
    const auto sandbox = w.sandboxes.find(id);
    const Instant then = Instant::clock::now() - std::chrono::seconds(100);
    sandbox->used = then;
    sandbox->work.look(0, 100, then);
    sandbox->work.look(60, 100, then + std::chrono::seconds(2));
    const auto answer = co_await w.send("GET", "/v1/sandboxes");
    const json::object body = parse_json_object(answer->body).value();
    const json::object& one = body.at("sandboxes").as_array().at(0).as_object();
    EXPECT_GE(one.at("idle_ms").as_int64(), 96'000) << "what may not have been seen yet does not count";
    EXPECT_LT(one.at("idle_ms").as_int64(), 100'000);
    const json::array& worked = one.at("worked").as_array();
    EXPECT_EQ(worked.size(), 2u);
    EXPECT_EQ(worked.at(0).as_int64(), 30);
    EXPECT_GE(worked.at(1).as_int64(), 94'000);
  });
}

TEST_F(RoutesTest, AnotherTenantSeesNothing) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string id = co_await w.create();
    const std::string commands = "/v1/sandboxes/" + id + "/commands";
    const std::string body = R"({"argv":["true"]})";
    EXPECT_EQ(co_await w.code_of("POST", commands, body, "other"), "sandbox_not_found");
    EXPECT_EQ(co_await w.code_of("POST", commands, body, ""), "sandbox_not_found");
    EXPECT_EQ(co_await w.code_of("POST", "/v1/sandboxes/" + new_id() + "/commands", body), "sandbox_not_found");
    EXPECT_EQ(co_await w.code_of("GET", "/v1/sandboxes/" + id + "/files/content?path=/etc/passwd", {}, "other"), "sandbox_not_found");
    EXPECT_EQ(co_await w.code_of("POST", commands, body), "201");
  });
}

TEST_F(RoutesTest, ACommandsEventsComeWithIdsAndEndWithTheExit) {
  run([](World& w) -> asio::awaitable<void> {
    w.agent.frames = {frame(wire::FrameType::start, 1, std::string("\5\0\0\0", 4)), frame(wire::FrameType::stdout_bytes, 2, "hi\n"),
                      frame(wire::FrameType::exit, 3, wire::encode_exit({0, 0, false, false}))};
    const std::string id = co_await w.create();
    const auto command = co_await w.command(id);
    const auto answer = co_await w.send("GET", attach_path(id, command));
    EXPECT_EQ(answer->headers.get("Content-Type"), "text/event-stream");
    http::SseReader reader;
    const auto events = reader.feed(answer->body).value();
    EXPECT_EQ(events.size(), 3u);
    if (events.size() != 3) co_return;
    EXPECT_EQ(events[1].id, "1.2");
    EXPECT_EQ(events[1].data, R"({"data":"aGkK"})");
    EXPECT_EQ(events[2].event, "exit");

    http::Request again;
    again.target = attach_path(id, command);
    again.headers.set("Last-Event-ID", "1.2");
    again.headers.set("Authorization", "Bearer " + std::string(command.at("token").as_string()));
    const auto rest = co_await w.client.request(again);
    EXPECT_EQ(rest->body.find("id: 1.2"), std::string::npos);
    EXPECT_NE(rest->body.find("id: 1.3"), std::string::npos);
    again.target = attach_path(id, command) + "?after=1.1";  // as a reconnecting client asks: the header is newer
    const auto newer = co_await w.client.request(again);
    EXPECT_EQ(newer->body.find("id: 1.2"), std::string::npos);
    again.headers.set("Authorization", "Bearer at_wrong");
    EXPECT_EQ((co_await w.client.request(again))->status, 401);
  });
}

TEST_F(RoutesTest, AnIdThatIsNotInTheWindowIsAnsweredWithTheWindow) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string id = co_await w.create();
    const auto command = co_await w.command(id);
    const auto outside = co_await w.send("GET", attach_path(id, command) + "?after=1.500");
    EXPECT_EQ(outside->status, 409);
    const auto body = parse_json_object(outside->body).value();
    EXPECT_EQ(body.at("first").as_string(), "1.5");
    EXPECT_EQ(body.at("last").as_string(), "1.9");
    EXPECT_EQ(co_await w.code_of("GET", attach_path(id, command) + "?after=x"), "invalid_event_id");
    EXPECT_EQ(co_await w.code_of("GET", "/v1/sandboxes/" + id + "/commands/nothing/attach"), "session_not_found");
  });
}

TEST_F(RoutesTest, AStreamOutlivesAPauseWithoutLossAndItsReaderIsLetGoAtOnce) {
  run([](World& w) -> asio::awaitable<void> {
    w.agent.frames = {frame(wire::FrameType::start, 1, std::string("\5\0\0\0", 4))};
    const std::string id = co_await w.create();
    const auto command = co_await w.command(id);
    http::Request request;
    request.target = attach_path(id, command);
    request.headers.set("Space-Tenant", "acme");
    auto stream = co_await w.client.open(request);
    EXPECT_TRUE(stream);
    EXPECT_EQ((co_await (*stream)->head())->status, 200);
    std::array<std::byte, 4096> room;
    EXPECT_GT((co_await (*stream)->read(room)).value(), 0u);
    EXPECT_TRUE(co_await w.sandboxes.pause(id, "p"));
    co_await until([&] { return w.agent.streams == 0; });
    w.agent.frames.push_back(frame(wire::FrameType::stdout_bytes, 2, "after"));
    EXPECT_TRUE(co_await w.sandboxes.resume(id, "r"));
    const auto size = co_await (*stream)->read(room);
    EXPECT_NE(as_text(std::span(room).first(size.value_or(0))).find("id: 1.2"), std::string::npos);
    EXPECT_EQ(w.agent.attached.back(), "/v1/processes/7/attach?after=1");
    EXPECT_EQ(w.agent.streams, 1);
    stream->reset();
    co_await until([&] { return w.agent.streams == 0; });
  });
}

TEST_F(RoutesTest, AnAgentThatNeverAnswersCostsItsCallerADeadlineAndNobodyElseAnything) {
  run([](World& w) -> asio::awaitable<void> {
    w.agent.router.add("GET", "/v1/processes", [](http::Exchange& e) -> Task<> {
      co_await e.disconnected();
      co_return Result<>{};
    });
    const std::string id = co_await w.create();
    const auto begin = std::chrono::steady_clock::now();
    const auto answer = co_await w.send("GET", "/v1/sandboxes/" + id + "/commands");
    EXPECT_EQ(answer->status, 504);
    EXPECT_EQ(http::error_from_response(504, answer->body).code, "agent_not_answering");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2'000));
    EXPECT_EQ(co_await w.code_of("DELETE", "/v1/sandboxes/" + id), "200");
  });
}

TEST_F(RoutesTest, AGuestChoosesBytesAndNothingElse) {
  run([](World& w) -> asio::awaitable<void> {
    std::string all;
    for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
    w.agent.router.add("GET", "/v1/files/content", [all](http::Exchange& e) {
      EXPECT_EQ(e.target().raw, "/v1/files/content?path=%2Ftmp%2Fa%20%26b&user=root");
      EXPECT_EQ(e.headers().get("Space-Tenant"), "");
      return e.reply({200, {{"Content-Type", "text/html"}, {"Set-Cookie", "a=b"}, {"Location", "http://evil"}}, all});
    });
    w.agent.router.add("GET", "/v1/files/stat", [](http::Exchange& e) {
      return e.reply({404, {}, R"({"code":"sandbox_not_found","detail":"x","title":"x","status":404})"});
    });
    w.agent.router.add("GET", "/v1/files/list", [](http::Exchange& e) { return e.reply({200, {}, "<html>"}); });
    const std::string files = "/v1/sandboxes/" + co_await w.create() + "/files";
    const auto content = co_await w.send("GET", files + "/content?path=/tmp/a%20%26b&user=root");
    EXPECT_EQ(content->body, all);
    EXPECT_EQ(content->headers.get("Content-Type"), "application/octet-stream");
    EXPECT_FALSE(content->headers.has("Set-Cookie") || content->headers.has("Location"));
    EXPECT_EQ(co_await w.code_of("GET", files + "/stat?path=/x"), "agent_not_answering");
    EXPECT_EQ(co_await w.code_of("GET", files + "/list?path=/x"), "agent_not_answering");
    EXPECT_EQ(co_await w.code_of("GET", files + "/stat?path=/x&extra=1"), "unknown_parameter");
    EXPECT_EQ(co_await w.code_of("GET", files + "/stat?path=/x&path=/y"), "unknown_parameter");
  });
}

TEST_F(RoutesTest, AnUploadArrivesWholeAndARefusalComesBack) {
  run([](World& w) -> asio::awaitable<void> {
    std::string seen;
    w.agent.router.add("PUT", "/v1/files/content", [&seen](http::Exchange& e) -> Task<> {
      CO_TRY(seen, co_await e.read_body(64 << 20));
      if (e.target().query_value("path") == "/full")
        co_return fail(ErrorKind::insufficient_storage, "no_space", "the disk is full", "remove something");
      co_return co_await e.reply(http::json_response(200, "{}"));
    });
    const std::string files = "/v1/sandboxes/" + co_await w.create() + "/files";
    const std::string big(5 << 20, 'z');
    EXPECT_EQ(co_await w.code_of("PUT", files + "/content?path=/big&parents=1", big), "200");
    EXPECT_EQ(seen, big);
    EXPECT_EQ(co_await w.code_of("PUT", files + "/content?path=/empty", ""), "200");
    EXPECT_EQ(seen, "");
    EXPECT_EQ(co_await w.code_of("PUT", files + "/content?path=/full", "x"), "no_space");
  });
}

TEST_F(RoutesTest, AWatchGivesKnownEventsAndCutsAtOthers) {
  run([](World& w) -> asio::awaitable<void> {
    w.agent.router.add("GET", "/v1/files/watch", [](http::Exchange& e) -> Task<> {
      http::SseWriter out(e);
      CO_TRY_VOID(co_await out.start());
      http::SseEvent event{"", "created", R"({"path":"/a"})"};
      CO_TRY_VOID(co_await out.send(event));
      if (e.target().query_value("path") == "/bad") event.event = "script";
      CO_TRY_VOID(co_await out.send(event));
      co_return co_await out.finish();
    });
    const std::string files = "/v1/sandboxes/" + co_await w.create() + "/files";
    const auto good = co_await w.send("GET", files + "/watch?path=/a");
    EXPECT_EQ(good->body, "event: created\ndata: {\"path\":\"/a\"}\n\nevent: created\ndata: {\"path\":\"/a\"}\n\n");
    EXPECT_FALSE(co_await w.send("GET", files + "/watch?path=/bad"));
  });
}

TEST_F(RoutesTest, APausedSandboxSaysSo) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string id = co_await w.create();
    EXPECT_EQ(co_await w.code_of("POST", "/v1/sandboxes/" + id + "/pause", R"({"operation":"p"})"), "200");
    EXPECT_EQ(co_await w.code_of("POST", "/v1/sandboxes/" + id + "/commands", R"({"argv":["true"]})"), "sandbox_paused");
    EXPECT_EQ(co_await w.code_of("GET", "/v1/sandboxes/" + id + "/files/stat?path=/"), "sandbox_paused");
    EXPECT_EQ(co_await w.code_of("POST", "/v1/sandboxes/" + id + "/resume", R"({"operation":"r"})"), "200");
  });
}

TEST_F(RoutesTest, EventsTellOfAnEnd) {
  run([](World& w) -> asio::awaitable<void> {
    const std::string id = co_await w.create();
    http::Request request;
    request.target = "/v1/events";
    auto stream = co_await w.client.open(request);
    EXPECT_EQ((co_await (*stream)->head())->status, 200);
    w.machines.kill(w.sandboxes.find(id)->machine);
    std::array<std::byte, 4096> room;
    const auto size = co_await (*stream)->read(room);
    const std::string text(as_text(std::span(room).first(size.value_or(0))));
    EXPECT_NE(text.find("event: sandbox_ended"), std::string::npos);
    EXPECT_NE(text.find(id), std::string::npos);
    EXPECT_EQ(co_await w.code_of("POST", "/v1/sandboxes/" + id + "/commands", R"({"argv":["true"]})"), "sandbox_ended");
  });
}

struct Envd {
  World& w;
  std::string id, token;
  asio::awaitable<int> status(std::string method, std::string target, const http::Headers* headers = nullptr) {
    http::Request request;
    request.method = std::move(method);
    request.target = "/v1/sandboxes/" + id + "/envd" + target;
    if (headers) request.headers = *headers;
    const auto answer = co_await w.client.request(std::move(request));
    EXPECT_FALSE(answer->headers.has("Set-Cookie"));
    co_return answer->status;
  }
};

asio::awaitable<Envd> envd_of(World& w) {
  const std::string id = co_await w.create();
  const auto answer = co_await w.send("GET", "/v1/sandboxes/" + id + "/tokens");
  co_return Envd{w, id, std::string(parse_json_object(answer->body).value().at("envd").as_string())};
}

TEST_F(RoutesTest, SdkTrafficNeedsTheSandboxesToken) {
  run([](World& w) -> asio::awaitable<void> {
    Envd envd = co_await envd_of(w), other = co_await envd_of(w);
    EXPECT_NE(envd.token, other.token);
    EXPECT_EQ(co_await envd.status("GET", "/health"), 204);
    const auto used = w.sandboxes.find(envd.id)->used;
    EXPECT_EQ(co_await envd.status("POST", "/process.Process/List"), 401);
    EXPECT_EQ(w.sandboxes.find(envd.id)->used, used) << "who may not use it keeps it from no rest";
    const http::Headers right{{"X-Access-Token", envd.token}, {"X-API-KEY", "secret"}, {"Authorization", "Basic cm9vdDo="}},
        wrong{{"X-Access-Token", other.token}};
    EXPECT_EQ(co_await envd.status("POST", "/process.Process/List", &wrong), 401);
    EXPECT_TRUE(w.agent.attached.empty());
    EXPECT_EQ(co_await envd.status("POST", "/process.Process/List", &right), 200);
    EXPECT_EQ(w.agent.attached.back().find(envd.token), std::string::npos);
    EXPECT_EQ(w.agent.attached.back().find("secret"), std::string::npos);
    EXPECT_NE(w.agent.attached.back().find("Basic cm9vdDo="), std::string::npos);
    const http::Headers open{{"Space-Access", "open"}};
    EXPECT_EQ(co_await envd.status("POST", "/process.Process/List", &open), 200);
    // The agent's own protocol, and what E2B's clients never call, stay behind.
    EXPECT_EQ(co_await envd.status("POST", "/v1/init", &right), 404);
    EXPECT_EQ(co_await envd.status("POST", "/init", &right), 404);
    EXPECT_EQ(co_await envd.status("POST", "/process.Process/Other", &right), 404);
  });
}

TEST_F(RoutesTest, SignedUrlsOfFilesAreGoodForWhatTheySay) {
  run([](World& w) -> asio::awaitable<void> {
    Envd envd = co_await envd_of(w);
    const auto target = [&](const std::string& path, const std::string& signature, const std::string& more = {}) {
      return "/files?path=" + percent_encode(path) + "&username=user&signature=" + percent_encode(signature) + more;
    };
    const std::string good = wire::file_signature("a b", "read", "user", envd.token, "");
    EXPECT_EQ(co_await envd.status("GET", target("a b", good)), 200);
    EXPECT_EQ(co_await envd.status("GET", target("other", good)), 401);
    EXPECT_EQ(co_await envd.status("POST", target("a b", good)), 401);
    EXPECT_EQ(co_await envd.status("GET", target("a b", good, "&signature_expiration=99999999999")), 401);
    EXPECT_EQ(co_await envd.status("GET", target("a b", wire::file_signature("a b", "read", "user", envd.token, "99999999999"),
                                                 "&signature_expiration=99999999999")),
              200);
    EXPECT_EQ(
        co_await envd.status("GET", target("a b", wire::file_signature("a b", "read", "user", envd.token, "1"), "&signature_expiration=1")),
        401);
    const http::Headers wrong{{"X-Access-Token", "x"}};
    EXPECT_EQ(co_await envd.status("GET", target("a b", good), &wrong), 401);
  });
}

TEST_F(RoutesTest, SdkTrafficToWhatCannotAnswerIs502) {
  run([](World& w) -> asio::awaitable<void> {
    Envd envd = co_await envd_of(w);
    EXPECT_EQ(co_await w.code_of("POST", "/v1/sandboxes/" + envd.id + "/pause", R"({"operation":"p"})"), "200");
    EXPECT_EQ(co_await envd.status("GET", "/health"), 502);
    envd.id = new_id();
    EXPECT_EQ(co_await envd.status("GET", "/health"), 502);
  });
}

TEST(Tokens, TheSignatureIsThatOfE2b) {
  // The example of E2B's own documentation of signatures.
  EXPECT_EQ(wire::file_signature("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", ""),
            "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
}

}  // namespace
}  // namespace space::node
