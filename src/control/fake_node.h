// For tests of control and api: a node without VMs, on a Unix socket, that keeps node's promises (idempotent by operation, a
// create behind its delete does not come back) and can be told to hang, to fail, to go away and to forget.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/unix_socket.h"
#include "http/router.h"
#include "http/server.h"
#include "http/sse.h"

namespace space::control::testing {

class FakeNode {
 public:
  struct Box {
    std::string tenant, state, operation;
    json::object request;
    std::string kept = {};
    std::int64_t idle_ms = 0;
    std::map<int, std::int64_t> worked = {};  // by percent of a core: how many ms ago
  };

  FakeNode(asio::any_io_executor executor, std::filesystem::path socket)
      : executor_(executor), socket_(std::move(socket)), changed_(executor), events_(executor) {
    add("PUT", "/v1/sandboxes/{id}", &FakeNode::put);
    add("DELETE", "/v1/sandboxes/{id}", &FakeNode::remove);
    add("POST", "/v1/sandboxes/{id}/pause", &FakeNode::pause);
    for (const char* path : {"/v1/sandboxes/{id}/resume", "/v1/sandboxes/{id}/start"}) add("POST", path, &FakeNode::resume);
    add("POST", "/v1/sandboxes/{id}/suspend", &FakeNode::suspend);
    add("POST", "/v1/sandboxes/{id}/update", &FakeNode::update);
    add("PUT", "/v1/sandboxes/{id}/kept", &FakeNode::keep);
    add("GET", "/v1/sandboxes/{id}", &FakeNode::look);
    add("GET", "/v1/sandboxes", &FakeNode::list);
    add("GET", "/v1/checkpoints/{id}", &FakeNode::checkpoint);
    add("GET", "/v1/info", &FakeNode::info);
    add("GET", "/v1/templates", &FakeNode::templates);
    add("GET", "/v1/templates/{ref}", &FakeNode::one_template);
    add("GET", "/v1/events", &FakeNode::stream);
    for (const char* path : {"/commands", "/commands/{session}", "/commands/{session}/token", "/commands/{session}/signal",
                             "/commands/{session}/stdin", "/files", "/files/content", "/files/mkdir", "/files/stat"})
      for (const char* method : {"GET", "POST", "PUT", "DELETE"}) add(method, std::string("/v1/sandboxes/{id}") + path, &FakeNode::echo);
    add("GET", "/v1/sandboxes/{id}/commands/{session}/attach", &FakeNode::attach);
    add("GET", "/v1/sandboxes/{id}/commands/{session}/access", &FakeNode::access);
  }

  void up() {
    server_ = std::make_unique<http::Server>(executor_, [this](http::Exchange& exchange) { return router_(exchange); });
    auto listener = listen_unix(socket_, SOCK_STREAM, 0600);
    if (listener) (void)server_->serve(std::move(*listener));
  }
  asio::awaitable<void> down() {
    leaving_ = true;
    changed_.notify_all();
    events_.notify_all();
    if (server_) co_await server_->stop(std::chrono::milliseconds(0));
    server_.reset();
    std::filesystem::remove(socket_);
    leaving_ = false;
  }
  // The sandbox's VM ends; `told` says whether those who listen hear of it.
  void end(const std::string& id, const std::string& reason, bool told = true) {
    boxes[id].state = "ended";
    ended_.emplace_back(id, reason);
    if (told) events_.notify_all();
  }
  void release() {
    hold = false;
    changed_.notify_all();
  }
  std::size_t count(std::string_view method) const {
    return static_cast<std::size_t>(std::ranges::count_if(calls, [&](const std::string& call) { return call.starts_with(method); }));
  }

  std::map<std::string, Box> boxes;
  std::map<std::string, std::string> checkpoints;  // by id: the sandbox that each is of
  std::vector<std::string> calls;                  // "PUT id", in order; data-plane calls too
  bool hold = false;                   // creates are made, calls of the data plane and changes come; their answers wait for `release`
  bool hold_before = false;            // creates wait before they are made; a delete ends the waiting
  std::optional<Error> fail_with;      // creates, pauses, suspends and resumes
  bool drop_answers = false;           // changes are made, then the connection is cut
  std::chrono::milliseconds delay{0};  // of creates, before and after they are made

 private:
  using Method = Task<> (FakeNode::*)(http::Exchange&);
  void add(std::string_view method, std::string_view pattern, Method call) {
    router_.add(method, pattern, [this, call](http::Exchange& exchange) { return (this->*call)(exchange); });
  }
  static Task<> answer(http::Exchange& exchange, json::object body) {
    co_return co_await exchange.reply(http::json_response(200, json::serialize(body)));
  }
  static json::array spans() { return {json::object{{"name", "load"}, {"start_us", 10}, {"duration_us", 20}}}; }

  Task<> put(http::Exchange& exchange) {
    const std::string id = exchange.param("id");
    CO_TRY(const std::string text, co_await exchange.read_body(1 << 20));
    CO_TRY(const json::object body, parse_json_object(text));
    calls.push_back("PUT " + id);
    if (fail_with) co_return fail(*fail_with);
    if (delay.count() > 0) co_await sleep_for(delay);
    while (hold_before && !deleted_.contains(id) && !leaving_) co_await changed_.wait();
    if (deleted_.contains(id)) co_return fail(ErrorKind::conflict, "sandbox_deleted", "deleted before its create had finished", "");
    const std::string operation(body.at("operation").as_string());
    const auto found = boxes.find(id);
    if (found != boxes.end() && found->second.operation != operation) co_return fail(ErrorKind::conflict, "sandbox_exists", "exists", "");
    const json::value* kept = body.if_contains("kept");
    boxes.insert({id, Box{std::string(body.at("tenant").as_string()), "running", operation, body,
                          kept ? std::string(kept->as_string()) : std::string()}});
    if (drop_answers) {
      exchange.abort();
      co_return Result<>();
    }
    if (delay.count() > 0) co_await sleep_for(delay);
    while (hold && !leaving_) co_await changed_.wait();
    json::object out{{"id", id}, {"state", "running"}, {"template_digest", "sha256:" + std::string(64, 'a')}, {"spans", spans()}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> remove(http::Exchange& exchange) {
    const std::string id = exchange.param("id");
    calls.push_back("DELETE " + id);
    if (boxes.contains(id) && boxes[id].state == "stuck") co_return fail(ErrorKind::unavailable, "vmm_hangs", "it does not end", "");
    boxes.erase(id);
    deleted_.insert(id);
    changed_.notify_all();
    json::object out{{"spans", spans()}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> move(http::Exchange& exchange, std::string state) {
    const std::string id = exchange.param("id");
    calls.push_back("POST " + id);
    CO_TRY_VOID(co_await exchange.read_body(4096));
    while (hold && !leaving_) co_await changed_.wait();
    if (fail_with) co_return fail(*fail_with);
    if (!boxes.contains(id)) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox", "");
    boxes[id].state = state;
    json::object out{{"id", id}, {"state", state}, {"spans", spans()}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> pause(http::Exchange& exchange) { return move(exchange, "paused"); }
  Task<> resume(http::Exchange& exchange) { return move(exchange, "running"); }
  Task<> suspend(http::Exchange& exchange) { return move(exchange, "suspended"); }
  Task<> update(http::Exchange& exchange) {
    const std::string id = exchange.param("id");
    CO_TRY(const std::string text, co_await exchange.read_body(1 << 20));
    calls.push_back("UPDATE " + id + " " + text);
    while (hold && !leaving_) co_await changed_.wait();
    if (fail_with) co_return fail(*fail_with);
    json::object out{{"id", id}, {"spans", spans()}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> keep(http::Exchange& exchange) {
    const std::string id = exchange.param("id");
    CO_TRY(const std::string text, co_await exchange.read_body(1 << 20));
    CO_TRY(const json::object body, parse_json_object(text));
    calls.push_back("KEEP " + id);
    if (!boxes.contains(id)) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox", "");
    boxes[id].kept = std::string(body.at("kept").as_string());
    json::object out{{"id", id}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> look(http::Exchange& exchange) {
    const std::string id = exchange.param("id");
    if (!boxes.contains(id)) co_return fail(ErrorKind::not_found, "sandbox_not_found", "no such sandbox", "");
    const Box& box = boxes[id];
    json::object out{{"id", id},
                     {"tenant", box.tenant},
                     {"state", box.state},
                     {"template", "base"},
                     {"cpus", 2},
                     {"memory_mib", 768},
                     {"disk_mib", 5120},
                     {"created_ms", 1'000'000},
                     {"template_digest", "sha256:aa"},
                     {"kept", box.kept}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> list(http::Exchange& exchange) {
    json::array all;
    for (const auto& [id, box] : boxes) {
      json::object one{{"id", id}, {"tenant", box.tenant}, {"state", box.state}, {"epoch", 1}, {"idle_ms", box.idle_ms}};
      if (!box.kept.empty()) one["kept_digest"] = digest_name(sha256(box.kept));
      for (const auto& [ended, reason] : ended_)
        if (ended == id) one["end_reason"] = reason;
      json::array worked;
      for (const auto& [percent, ms] : box.worked) worked.insert(worked.end(), {percent, ms});
      if (!worked.empty()) one["worked"] = std::move(worked);
      all.push_back(std::move(one));
    }
    json::object out{{"sandboxes", std::move(all)}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> checkpoint(http::Exchange& exchange) {
    const std::string id = exchange.param("id");
    const auto found = checkpoints.find(id);
    if (found == checkpoints.end())
      co_return fail(ErrorKind::not_found, "checkpoint_not_found", "there is no such checkpoint", "list them");
    json::object out{{"id", id},  {"sandbox", found->second}, {"lineage", found->second}, {"template", "base"},
                     {"cpus", 2}, {"memory_mib", 1024},       {"disk_mib", 4096}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> info(http::Exchange& exchange) {
    json::object out{{"version", "0.1.0"}, {"driver", "fake"},    {"accelerator", "none"}, {"vmm_version", "1"},
                     {"limits", "none"},   {"agent_protocol", 1}, {"pools", json::array()}};
    co_return co_await answer(exchange, std::move(out));
  }
  static json::object release_named(const std::string& tag) {
    return {{"name", "base"},
            {"tag", tag},
            {"digest", "sha256:" + std::string(64, 'a')},
            {"created_at", "2026-01-01T00:00:00.000Z"},
            {"cpus", 1},
            {"memory_mib", 512},
            {"disk_mib", 4096},
            {"rootfs_bytes", 1}};
  }
  Task<> templates(http::Exchange& exchange) {
    json::array all;
    all.push_back(release_named("latest"));
    json::object out{{"templates", std::move(all)}};
    co_return co_await answer(exchange, std::move(out));
  }
  Task<> one_template(http::Exchange& exchange) {
    calls.push_back("TEMPLATE " + exchange.param("ref"));
    if (!exchange.param("ref").starts_with("base"))
      co_return fail(ErrorKind::not_found, "template_not_found", "there is no such template", "list them");
    co_return co_await answer(exchange, release_named("latest"));
  }
  Task<> send_ended(http::SseWriter& writer, std::size_t from) {
    while (!leaving_) {
      for (; from < ended_.size(); ++from) {
        json::object data{{"sandbox", ended_[from].first}, {"reason", ended_[from].second}};
        const http::SseEvent event{std::to_string(from), "sandbox_ended", json::serialize(data)};
        CO_TRY_VOID(co_await writer.send(event));
      }
      co_await events_.wait();
    }
    co_return Result<>();
  }
  Task<> stream(http::Exchange& exchange) {
    http::SseWriter writer(exchange);
    CO_TRY_VOID(co_await writer.start());
    CO_TRY_VOID(co_await writer.keepalive());
    co_return co_await http::until_disconnected(exchange, send_ended(writer, ended_.size()));
  }
  // What the api sent on, seen from here.
  Task<> echo(http::Exchange& exchange) {
    calls.push_back(exchange.method() + " " + exchange.target().raw);
    CO_TRY(const std::string body, co_await exchange.read_body(64 << 20));
    while (hold && !leaving_) co_await changed_.wait();
    json::object headers;
    for (const auto& [name, value] : exchange.headers().fields()) headers[name] = value;
    json::object out{{"method", exchange.method()}, {"target", exchange.target().raw}, {"headers", std::move(headers)},
                     {"bytes", body.size()},        {"body", body.substr(0, 1024)},    {"call", calls.size()}};
    co_return co_await exchange.reply(http::json_response(exchange.method() == "POST" ? 201 : 200, json::serialize(out)));
  }
  static Result<> check_token(http::Exchange& exchange) {
    const std::string_view authorization = exchange.headers().get("Authorization");
    if (authorization.empty() && !exchange.headers().has("Space-Tenant"))
      return fail(ErrorKind::unauthenticated, "token_invalid", "no token", "");
    if (authorization == "Bearer at_expired") return fail(ErrorKind::gone, "token_expired", "the attach token has expired", "renew it");
    if (!authorization.empty() && authorization != "Bearer at_good")
      return fail(ErrorKind::unauthenticated, "token_invalid", "no such token", "");
    return {};
  }
  Task<> access(http::Exchange& exchange) {
    CO_TRY_VOID(check_token(exchange));
    co_return co_await exchange.reply(http::json_response(200, "{}"));
  }
  Task<> attach(http::Exchange& exchange) {
    CO_TRY_VOID(check_token(exchange));
    http::SseWriter writer(exchange);
    CO_TRY_VOID(co_await writer.start());
    for (int i = 1; i <= 3; ++i) {
      const http::SseEvent event{fmt::format("1.{}", i), i == 3 ? "exit" : "stdout", i == 3 ? R"({"code":0})" : R"({"data":"aGk="})"};
      CO_TRY_VOID(co_await writer.send(event));
    }
    co_return co_await writer.finish();
  }

  asio::any_io_executor executor_;
  std::filesystem::path socket_;
  http::Router router_;
  std::unique_ptr<http::Server> server_;
  Signal changed_, events_;
  std::set<std::string> deleted_;
  std::vector<std::pair<std::string, std::string>> ended_;
  bool leaving_ = false;
};

}  // namespace space::control::testing
