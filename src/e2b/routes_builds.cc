// Builds as E2B's SDKs and its CLI drive them: a name, links for files, the start, the state with its log, and tags that move.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/encoding.h"
#include "base/random.h"
#include "e2b/builds.h"
#include "e2b/state.h"

namespace space::e2b {
namespace {

constexpr std::size_t kBuildBody = 8 << 20, kMostEntries = 100;

Task<json::object> read_large(http::Exchange& exchange) {
  CO_TRY(const std::string text, co_await exchange.read_body(kBuildBody));
  co_return parse_json_object(text.empty() ? "{}" : text, kBuildBody);
}

Result<build::Builds*> builds_of(State& state) {
  if (!state.parts.builds) return fail(ErrorKind::invalid_argument, "not_supported", "this server builds no templates");
  return state.parts.builds;
}

tl::unexpected<Error> unknown_template(std::string_view name) {
  return fail(ErrorKind::not_found, "template_not_found", fmt::format("template '{}' not found", is_utf8(name) ? name.substr(0, 100) : "?"),
              "see what there is: GET /templates");
}

Task<> save_aliases(build::Builds& builds) {
  auto keep = [file = builds.aliases().file(), text = builds.aliases().text()] { return build::Aliases::save(file, text); };
  co_return co_await builds.pool().run(keep);
}

// The tenant's build that the path names; its id there is a UUID.
Result<build::Build> build_of(State& state, const http::Exchange& exchange) {
  TRY(build::Builds* const builds, builds_of(state));
  const std::string& wanted = exchange.param("build");
  for (build::Build& one : builds->list(tenant_of(exchange)))
    if (build_uuid(one.id) == wanted && one.name == exchange.param("template")) return std::move(one);
  return fail(ErrorKind::not_found, "build_not_found", "there is no such build", "make one: POST /v3/templates");
}

Task<> create_build(State& state, http::Exchange& exchange) {
  CO_TRY(build::Builds* const builds, builds_of(state));
  CO_TRY(const json::object body, co_await read_body(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  std::string given = r.text("name", 0, 256, "");
  if (given.empty()) given = r.text("alias", 1, 256);
  const std::vector<std::string> more = r.texts("tags", build::kMostTags, 128);
  const auto cpus = r.optional_number("cpuCount", 1, 64);
  const auto memory = r.optional_number("memoryMB", 128, 1 << 20);
  CO_TRY_VOID(r.done());
  CO_TRY(const AliasName alias, alias_name(given));
  std::set<std::string> tags;
  if (!alias.tag.empty()) tags.insert(alias.tag);
  for (const std::string& one : more) {
    CO_TRY(std::string tag, alias_tag(one));
    tags.insert(std::move(tag));
  }
  if (tags.empty()) tags.insert("default");
  // A name of the server's own templates is not to be had.
  const auto taken = co_await state.parts.node.template_size(alias.name + ":latest");
  if (taken && !builds->aliases().tags(alias.name))
    co_return fail(ErrorKind::permission_denied, "name_taken", fmt::format("'{}' is a template of this server", alias.name),
                   "choose another name");
  std::string joined;
  for (const std::string& tag : tags) joined += (joined.empty() ? "" : ",") + tag;
  build::Builds::Wanted wanted;
  wanted.tenant = tenant_of(exchange);
  wanted.name = alias.name;
  wanted.tag = "b-" + new_id();
  wanted.alias_tags = joined;
  wanted.cpus = cpus;
  wanted.memory_mib = memory;
  CO_TRY(const build::Build made, co_await builds->create(std::move(wanted)));
  json::array shown;
  for (const std::string& tag : tags) shown.emplace_back(tag);
  const json::object out{{"templateID", made.name},         {"buildID", build_uuid(made.id)},    {"public", false},
                         {"names", json::array{made.name}}, {"aliases", json::array{made.name}}, {"tags", std::move(shown)}};
  co_return co_await reply(exchange, 202, out);
}

// Where this request came to, for links. The domain's names are always served over TLS.
std::string here(const State& state, const http::Exchange& exchange) {
  const std::string host(exchange.headers().get("Host"));
  const std::string_view name = std::string_view(host).substr(0, host.rfind(':'));
  const std::string& domain = state.options.domain;
  const bool ours = !domain.empty() && (name == domain || name.ends_with("." + domain));
  const bool secure = state.options.tls || ours || exchange.headers().get("X-Forwarded-Proto") == "https";
  return fmt::format("{}://{}", secure ? "https" : "http", host);
}

Task<> file_link(State& state, http::Exchange& exchange) {
  CO_TRY(build::Builds* const builds, builds_of(state));
  const std::string hash = exchange.param("hash"), name = exchange.param("template"), tenant = tenant_of(exchange);
  if (!build::is_upload(hash)) co_return fail(ErrorKind::invalid_argument, "invalid_request", "files are named by a SHA-256");
  auto look = [builds, tenant, hash] { return builds->uploads().find(tenant, hash); };
  CO_TRY(const auto found, co_await builds->pool().run(look));
  json::object out{{"present", found.has_value()}};
  out["url"] = fmt::format("{}/templates/{}/files/{}?token={}", here(state, exchange), percent_encode(name), hash,
                           percent_encode(upload_token(state, tenant, hash)));
  co_return co_await reply(exchange, 201, out);
}

Task<> upload(State& state, http::Exchange& exchange) {
  CO_TRY(build::Builds* const builds, builds_of(state));
  const std::string hash = exchange.param("hash");
  const auto tenant = check_upload_token(state, exchange.target().query_value("token").value_or(""), hash);
  if (!tenant || !build::is_upload(hash))
    co_return fail(ErrorKind::permission_denied, "link_invalid", "this link for an upload is not valid, or not any more",
                   "ask for another one");
  CO_TRY_VOID(co_await builds->receive(exchange, *tenant, hash, false));
  co_return co_await reply(exchange, 201, json::object());
}

// Images are not fetched: what a client names must have been imported. The log of a build would only say that a template is missing.
Task<> find_image(State& state, const json::object& body, const build::Spec& spec) {
  const json::value* image = body.if_contains("fromImage");
  if (!image || !image->is_string() || image->get_string().empty()) co_return Result<>();
  const auto there = co_await state.parts.node.template_size(spec.parent);
  if (there || there.error().kind != ErrorKind::not_found) co_return Result<>();
  co_return fail(
      ErrorKind::invalid_argument, "image_missing",
      fmt::format("the image '{}' was not imported into this server", std::string_view(image->get_string())),
      fmt::format("import it: space template build -t {} --image docker://{}", spec.parent, std::string_view(image->get_string())));
}

Task<> start(State& state, http::Exchange& exchange) {
  CO_TRY(build::Builds* const builds, builds_of(state));
  CO_TRY(const build::Build waiting, build_of(state, exchange));
  CO_TRY(const json::object body, co_await read_large(exchange));
  CO_TRY(build::Spec spec, read_build(state, body));
  CO_TRY_VOID(co_await find_image(state, body, spec));
  if (waiting.state != build::BuildState::waiting)
    co_return fail(ErrorKind::invalid_argument, "build_begun", "this build has begun already", "make another one");
  spec.cpus = waiting.spec.cpus;
  spec.memory_mib = waiting.spec.memory_mib;
  CO_TRY_VOID(co_await builds->begin(waiting.tenant, waiting.id, std::move(spec)));
  http::Response accepted;
  accepted.status = 202;
  co_return co_await exchange.reply(std::move(accepted));
}

json::object entry_json(const build::LogEntry& entry) {
  json::object out{{"timestamp", rfc3339(entry.time_ms)}, {"level", entry.level}, {"message", entry.message}};
  if (!entry.step.empty()) out["step"] = entry.step;
  return out;
}

const char* status_text(build::BuildState state) {
  switch (state) {
    case build::BuildState::waiting:
      return "waiting";
    case build::BuildState::building:
      return "building";
    case build::BuildState::ready:
      return "ready";
    case build::BuildState::failed:
    case build::BuildState::cancelled:
      break;
  }
  return "error";
}

Task<std::vector<build::LogEntry>> entries_of(State& state, const http::Exchange& exchange, const build::Build& one) {
  const auto number = [&](const char* name, std::size_t absent) {
    const std::string text = exchange.target().query_value(name).value_or("");
    return text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos
               ? absent
               : static_cast<std::size_t>(std::stoul(text));
  };
  const std::size_t from = number("logsOffset", number("offset", 0)), most = std::min(number("limit", kMostEntries), kMostEntries);
  co_return co_await state.parts.builds->log(one.tenant, one.id, from, most, std::chrono::milliseconds(0));
}

Task<> status(State& state, http::Exchange& exchange) {
  CO_TRY(const build::Build one, build_of(state, exchange));
  CO_TRY(const auto entries, co_await entries_of(state, exchange, one));
  json::array shown;
  for (const build::LogEntry& entry : entries) shown.push_back(entry_json(entry));
  json::object out{{"templateID", one.name},
                   {"buildID", build_uuid(one.id)},
                   {"status", status_text(one.state)},
                   {"logs", json::array()},
                   {"logEntries", std::move(shown)}};
  if (one.error) {
    json::object reason{{"message", one.error->message}, {"logEntries", json::array()}};
    if (!one.failed_step.empty()) reason["step"] = one.failed_step;
    out["reason"] = std::move(reason);
  }
  co_return co_await reply(exchange, 200, out);
}

Task<> logs(State& state, http::Exchange& exchange) {
  CO_TRY(const build::Build one, build_of(state, exchange));
  CO_TRY(const auto entries, co_await entries_of(state, exchange, one));
  json::array shown;
  for (const build::LogEntry& entry : entries) shown.push_back(entry_json(entry));
  const json::object out{{"logs", std::move(shown)}};
  co_return co_await reply(exchange, 200, out);
}

// What a name with a tag stands for: one of ours, or a release that was published without E2B.
Task<build::AliasTag> target_of(State& state, AliasName name) {
  const std::string tag = name.tag.empty() ? "default" : name.tag;
  if (const auto found = state.parts.builds->aliases().find(name.name, tag)) co_return *found;
  const std::string reference = fmt::format("{}:{}", name.name, tag == "default" ? "latest" : tag);
  const auto there = co_await state.parts.node.template_size(reference);
  if (!there) co_return unknown_template(name.name + (name.tag.empty() ? "" : ":" + name.tag));
  co_return build::AliasTag{reference, reference, 0};
}

Task<> set_tags(State& state, http::Exchange& exchange) {
  CO_TRY(build::Builds* const builds, builds_of(state));
  CO_TRY(const json::object body, co_await read_body(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  const std::string target = r.text("target", 1, 256);
  const std::vector<std::string> wanted = r.texts("tags", build::kMostTags, 128);
  CO_TRY_VOID(r.done());
  if (wanted.empty()) co_return fail(ErrorKind::invalid_argument, "invalid_request", "tags must name at least one");
  CO_TRY(const AliasName name, alias_name(target));
  json::array shown;
  std::vector<std::string> tags;
  for (const std::string& one : wanted) {
    CO_TRY(std::string tag, alias_tag(one));
    shown.emplace_back(tag);
    tags.push_back(std::move(tag));
  }
  CO_TRY(build::AliasTag found, co_await target_of(state, name));
  const std::string uuid = build_uuid(found.build);
  found.created_ms = state.parts.clock.wall_ms();
  for (const std::string& tag : tags) builds->aliases().set(name.name, tag, found);
  CO_TRY_VOID(co_await save_aliases(*builds));
  const json::object out{{"buildID", uuid}, {"tags", std::move(shown)}};
  co_return co_await reply(exchange, 201, out);
}

Task<> remove_tags(State& state, http::Exchange& exchange) {
  CO_TRY(build::Builds* const builds, builds_of(state));
  CO_TRY(const json::object body, co_await read_body(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  const std::string given = r.text("name", 1, 256);
  const std::vector<std::string> tags = r.texts("tags", build::kMostTags, 128);
  CO_TRY_VOID(r.done());
  CO_TRY(const AliasName name, alias_name(given));
  if (!builds->aliases().tags(name.name)) co_return unknown_template(name.name);
  for (const std::string& one : tags) {
    CO_TRY(const std::string tag, alias_tag(one));
    if (tag == "default")
      co_return fail(ErrorKind::invalid_argument, "invalid_request", "the tag 'default' stays with its template", "delete the template");
    if (!builds->aliases().find(name.name, tag)) co_return unknown_template(name.name + ":" + tag);
  }
  for (const std::string& one : tags) {
    CO_TRY(const std::string tag, alias_tag(one));
    builds->aliases().drop(name.name, tag);
  }
  CO_TRY_VOID(co_await save_aliases(*builds));
  co_return co_await reply_empty(exchange);
}

Task<> get_tags(State& state, http::Exchange& exchange) {
  CO_TRY(build::Builds* const builds, builds_of(state));
  CO_TRY(const AliasName name, alias_name(exchange.param("template")));
  json::array out;
  const auto* known = builds->aliases().tags(name.name);
  if (known) {
    for (const auto& [tag, target] : *known)
      out.push_back(json::object{{"tag", tag}, {"buildID", build_uuid(target.build)}, {"createdAt", rfc3339(target.created_ms)}});
  } else {
    AliasName bare{name.name, ""};
    CO_TRY(const build::AliasTag target, co_await target_of(state, std::move(bare)));
    out.push_back(json::object{{"tag", "default"}, {"buildID", build_uuid(target.build)}, {"createdAt", rfc3339(target.created_ms)}});
  }
  co_return co_await reply(exchange, 200, out);
}

// E2B's switch between templates of one team and of all: here every key may use every template, so it is on already, and stays on.
Task<> publish_switch(State& state, http::Exchange& exchange) {
  CO_TRY(const AliasName name, alias_name(exchange.param("template")));
  CO_TRY(const json::object body, co_await read_body(exchange));
  JsonReader r(body);
  r.ignore_unknown();
  const bool wanted = r.boolean("public", true);
  CO_TRY_VOID(r.done());
  CO_TRY_VOID(builds_of(state));
  CO_TRY_VOID(co_await target_of(state, name));
  if (!wanted)
    co_return fail(ErrorKind::invalid_argument, "not_supported", "every key of this server may use its templates: none can be taken back",
                   "remove it: DELETE /templates/" + name.name);
  const json::object out{{"names", json::array{name.name}}};
  co_return co_await reply(exchange, 200, out);
}

}  // namespace

Task<bool> remove_built(State& state, const http::Exchange& exchange) {
  if (!state.parts.builds) co_return false;
  build::Builds& builds = *state.parts.builds;
  const auto name = alias_name(exchange.param("template"));
  if (!name) co_return false;
  const auto tags = builds.aliases().tags(name->name);
  if (!tags) co_return false;
  if (exchange.attributes.at("tenant") != control::kDefaultTenant)
    co_return fail(ErrorKind::permission_denied, "host_only",
                   "templates are shared by every tenant of this server, and made by those who keep it");
  std::set<std::string> references;
  for (const auto& [tag, target] : *tags)
    if (target.reference.starts_with(name->name + ":b-")) references.insert(target.reference);
  for (const std::string& reference : references) {
    co_await builds.forget_layers_on(exchange.attributes.at("tenant"), reference);
    http::Request request;
    request.method = "DELETE";
    request.target = "/v1/templates/" + percent_encode(reference);
    auto gone = co_await state.parts.node.forwarding().request(std::move(request));
    if (!gone) co_return fail(control::node_unavailable(gone.error().message));
    if (gone->status == 409)
      co_return fail(ErrorKind::invalid_argument, "template_in_use", fmt::format("sandboxes of template '{}' exist", name->name),
                     "kill them first");
    if (gone->status >= 400 && gone->status != 404) co_return fail(http::error_from_response(gone->status, gone->body));
  }
  builds.aliases().drop_name(name->name);
  CO_TRY_VOID(co_await save_aliases(builds));
  state.parts.node.forget_template_sizes();
  co_return true;
}

void add_build_routes(State& state) {
  add(state, "POST", "/v3/templates", create_build);
  add(state, "POST", "/v2/templates", create_build);
  add(state, "GET", "/templates/{template}/files/{hash}", file_link);
  add(state, "PUT", "/templates/{template}/files/{hash}", upload);
  add(state, "POST", "/v2/templates/{template}/builds/{build}", start);
  add(state, "GET", "/templates/{template}/builds/{build}/status", status);
  add(state, "GET", "/templates/{template}/builds/{build}/logs", logs);
  add(state, "POST", "/templates/tags", set_tags);
  add(state, "DELETE", "/templates/tags", remove_tags);
  add(state, "GET", "/templates/{template}/tags", get_tags);
  add(state, "PATCH", "/templates/{template}", publish_switch);
  add(state, "PATCH", "/v2/templates/{template}", publish_switch);
}

}  // namespace space::e2b
