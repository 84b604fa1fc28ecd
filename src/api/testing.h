// For tests of this folder: the whole API on a socket of its own, over a fake node, driven by an HTTP client on the same loop.
#pragma once

#include <gtest/gtest.h>

#include "api/routes.h"
#include "base/file.h"
#include "control/fake_node.h"
#include "control/sqlite_store.h"
#include "control/testing.h"
#include "http/client.h"

namespace space::api::testing {

using control::testing::FakeNode;
using control::testing::run;

struct Answer {
  int status = 0;
  http::Headers headers;
  json::object body;
  std::string text;
  std::string code() const { return body.contains("code") ? std::string(body.at("code").as_string()) : ""; }
  const json::object& at(std::string_view name) const { return body.at(name).as_object(); }
};

inline std::string text(const json::object& object, std::string_view name) { return std::string(object.at(name).as_string()); }

class ApiTest : public ::testing::Test {
 protected:
  // What lives as long as one server process would.
  struct Process {
    Process(asio::io_context& loop, const std::filesystem::path& folder, control::EngineOptions options)
        : store(std::move(*control::open_sqlite_store(folder / "space.db", loop.get_executor(), system_clock()))),
          node(loop.get_executor(), (folder / "node.sock").string(), system_clock()),
          engine(loop.get_executor(), *store, node, system_clock(), options),
          keys(*store, system_clock()),
          services(loop.get_executor(), *store, engine, node, keys, system_clock()) {
      add_routes(services, router);
      server = std::make_unique<http::Server>(loop.get_executor(), [this](http::Exchange& exchange) { return router(exchange); });
      auto listener = listen_unix(folder / "api.sock", SOCK_STREAM, 0600);
      (void)server->serve(std::move(*listener));
    }
    std::unique_ptr<control::Store> store;
    control::Node node;
    control::Engine engine;
    KeyRing keys;
    Services services;
    http::Router router;
    std::unique_ptr<http::Server> server;
  };

  ApiTest()
      : folder_(std::move(*TempDir::make(std::filesystem::temp_directory_path(), "space-api-"))),
        fake_(loop_.get_executor(), folder_.path() / "node.sock") {
    options_.patience = std::chrono::milliseconds(300);
    fake_.up();
    begin();
    key_ = run(loop_, process_->keys.create("default", "test"))->secret;
  }
  ~ApiTest() override { end(); }

  void begin() {
    process_ = std::make_unique<Process>(loop_, folder_.path(), options_);
    ASSERT_TRUE(run(loop_, process_->engine.start()));
    client_ = std::make_unique<http::Client>(loop_.get_executor(), http::unix_connector((folder_.path() / "api.sock").string()));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!process_->node.reachable() && std::chrono::steady_clock::now() < until) spin(std::chrono::milliseconds(2));
  }
  void end() {
    process_->services.stopping = true;
    process_->engine.stop();
    process_->services.appended.notify_all();
    (void)run(loop_, [](http::Server& server) -> Task<> {
      co_await server.stop(std::chrono::milliseconds(50));
      co_return Result<>();
    }(*process_->server));
    spin(std::chrono::milliseconds(20));
    client_.reset();
    graves_.push_back(std::move(process_));
    graves_.back()->store.reset();
  }
  void restart() {
    end();
    begin();
  }
  void spin(std::chrono::milliseconds time) {
    loop_.restart();
    loop_.run_for(time);
  }

  http::Request request(std::string method, std::string target, std::string body = {}) const {
    http::Request out;
    out.method = std::move(method);
    out.target = std::move(target);
    if (!key_.empty()) out.headers.set("Authorization", "Bearer " + key_);
    if (!body.empty()) out.headers.set("Content-Type", "application/json");
    out.body = std::move(body);
    return out;
  }
  Answer send(http::Request out) {
    auto response = run(loop_, client_->request(std::move(out)));
    Answer answer;
    if (!response) {
      ADD_FAILURE() << describe(response.error());
      return answer;
    }
    answer.status = response->status;
    answer.headers = response->headers;
    answer.text = response->body;
    if (auto object = parse_json_object(response->body)) answer.body = std::move(*object);
    return answer;
  }
  Answer send(std::string method, std::string target, std::string body = {}) {
    return send(request(std::move(method), std::move(target), std::move(body)));
  }
  Answer send_with(std::string method, std::string target, std::string body,
                   std::initializer_list<std::pair<std::string, std::string>> headers) {
    http::Request out = request(std::move(method), std::move(target), std::move(body));
    for (const auto& [name, value] : headers) out.headers.add(name, value);
    return send(std::move(out));
  }
  // A sandbox that runs.
  std::string running(const std::string& body = "{}") {
    const Answer made = send_with("POST", "/v1/sandboxes", body, {{"Prefer", "wait=10"}});
    EXPECT_EQ(made.status, 201) << made.text;
    return made.status == 201 ? text(made.at("sandbox"), "id") : "";
  }

  asio::io_context loop_;
  TempDir folder_;
  FakeNode fake_;
  control::EngineOptions options_;
  std::unique_ptr<Process> process_;
  std::vector<std::unique_ptr<Process>> graves_;
  std::unique_ptr<http::Client> client_;
  std::string key_;
};

}  // namespace space::api::testing
