#include "cli/commands_template.h"

#include <fmt/format.h>

#include <map>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "cli/build_context.h"
#include "cli/commands.h"
#include "cli/dockerfile.h"
#include "cli/event_stream.h"
#include "template/command.h"

namespace space::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kPiece = 256 << 10;
constexpr std::chrono::minutes kPublishing{11};

bool is_late(const Error& error) { return error.code == "answer_timeout"; }

struct Prepared {
  json::object body;
  std::vector<PackedFiles> files;
};

Result<std::map<std::string, std::string>> arguments_of(const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> out;
  for (const std::string& pair : pairs) {
    const std::size_t equal = pair.find('=');
    if (equal == pair.npos || equal == 0)
      return fail(ErrorKind::invalid_argument, "invalid_build_arg", fmt::format("'{}' is no NAME=VALUE", pair),
                  "write --build-arg NAME=VALUE");
    out[pair.substr(0, equal)] = pair.substr(equal + 1);
  }
  return out;
}

// One COPY of the file may name several things: each is a step with an archive of its own.
Result<> add_copy(const DockerStep& step, const BuildContext& context, Prepared& out, json::array& steps) {
  std::vector<std::string> entries;
  for (std::size_t i = 0; i + 1 < step.args.size(); ++i) {
    auto some = context.match(step.args[i]);
    if (!some)
      return fail(some.error().kind, some.error().code, fmt::format("line {}: {}", step.line, some.error().message), some.error().next);
    entries.insert(entries.end(), some->begin(), some->end());
  }
  std::string destination = step.args.back();
  if (entries.size() > 1 && !destination.ends_with('/'))
    return fail(ErrorKind::invalid_argument, "dockerfile", fmt::format("line {}: several sources need a folder as destination", step.line),
                "end it with '/'");
  if (destination == ".") destination = "./";
  for (const std::string& entry : entries) {
    TRY(PackedFiles packed, context.pack(entry));
    steps.push_back(
        json::object{{"type", "COPY"}, {"args", json::array{entry, destination, step.owner, step.mode}}, {"filesHash", packed.digest}});
    out.files.push_back(std::move(packed));
  }
  return {};
}

Result<> add_dockerfile(const ServerBuildOptions& options, Prepared& out, json::array& steps) {
  const fs::path file = options.dockerfile.empty() ? options.context / "Dockerfile" : options.dockerfile;
  auto text = read_file(file, 1 << 20);
  if (!text)
    return fail(ErrorKind::not_found, "no_dockerfile", fmt::format("{} cannot be read: {}", file.string(), text.error().message),
                "name it with -f, or build with --from or --image");
  TRY(const auto arguments, arguments_of(options.arguments));
  TRY(const Dockerfile parsed, parse_dockerfile(*text, arguments));
  TRY(const BuildContext context, BuildContext::open(options.context));
  for (const DockerStep& step : parsed.steps) {
    if (step.type == "COPY") {
      TRY_VOID(add_copy(step, context, out, steps));
      continue;
    }
    steps.push_back(json::object{{"type", step.type}, {"args", json::value_from(step.args)}});
  }
  // An image's registry and path mean nothing here; its last part is the name of a template.
  std::string parent = parsed.parent.substr(parsed.parent.rfind('/') == std::string::npos ? 0 : parsed.parent.rfind('/') + 1);
  out.body["parent"] = options.parent.empty() ? parent : options.parent;
  if (!parsed.start.empty()) out.body["start"] = parsed.start;
  return {};
}

// A registry's image as a file: the same blobs, which skopeo only moves.
Result<PackedFiles> pull(const std::string& reference, Console& console) {
  TRY(const TempDir folder, TempDir::make(fs::temp_directory_path(), "space-image-"));
  const fs::path file = folder.path() / "image.tar";
  tmpl::Command command;
  command.argv = {"skopeo", "copy", "--override-os", "linux", "--override-arch", "amd64", reference, "docker-archive:" + file.string()};
  command.on_line = [&](const std::string& line) {
    if (!console.as_json()) console.note("    " + printable(line));
  };
  command.time_limit = std::chrono::minutes(30);
  TRY_VOID(tmpl::run_command(command));
  return pack_image(file);
}

Result<Prepared> prepare(const ServerBuildOptions& options, Console& console) {
  Prepared out;
  json::array steps;
  const bool file_given = !options.dockerfile.empty();
  if (!options.image.empty()) {
    if (file_given || !options.parent.empty())
      return fail(ErrorKind::invalid_argument, "invalid_build", "--image stands alone",
                  "build from the image first, then from that template");
    const bool remote = options.image.starts_with("docker://");
    TRY(PackedFiles packed, remote ? pull(options.image, console) : pack_image(options.image));
    out.body["image"] = packed.digest;
    out.files.push_back(std::move(packed));
  } else if (file_given || options.parent.empty()) {
    TRY_VOID(add_dockerfile(options, out, steps));
  } else {
    out.body["parent"] = options.parent;
  }
  out.body["name"] = options.tag;
  out.body["steps"] = std::move(steps);
  out.body["force"] = options.no_cache;
  if (!options.start.empty()) out.body["start"] = options.start;
  if (!options.ready.empty()) out.body["ready"] = options.ready;
  if (options.cpus > 0) out.body["cpus"] = options.cpus;
  if (options.memory_mib > 0) out.body["memory_mib"] = options.memory_mib;
  if (options.disk_mib > 0) out.body["disk_mib"] = options.disk_mib;
  return out;
}

Task<> upload(Context& context, const PackedFiles& files) {
  const std::string target = "/v1/uploads/" + files.digest;
  CO_TRY(const json::object state, co_await context.api.get(target));
  const json::value* present = state.if_contains("present");
  if (present && present->is_bool() && present->get_bool()) co_return Result<>();
  ProgressBar bar("sending files", files.bytes, !context.console.as_json());
  CO_TRY(const std::unique_ptr<http::ClientStream> stream, co_await context.api.open("PUT", target, http::BodyKind::sized, files.bytes));
  for (std::uint64_t at = 0; at < files.bytes;) {
    std::string piece(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, files.bytes - at)), '\0');
    auto read = [&] { return pread_all(files.file, std::as_writable_bytes(std::span(piece)), at); };
    CO_TRY_VOID(co_await context.pool.run(read));
    if (auto sent = co_await stream->write(std::as_bytes(std::span(piece))); !sent) break;  // an answer says why
    at += piece.size();
    bar.add(piece.size());
  }
  (void)co_await stream->finish_request();
  CO_TRY(const http::Response head, co_await stream->head());
  CO_TRY(const std::string text, co_await stream->read_all(64 << 10));
  if (head.status >= 400) co_return fail(http::error_from_response(head.status, text));
  co_return Result<>();
}

// The log as it comes, and how the build ended.
Task<json::object> follow(Context& context, std::string build) {
  EventStreamOptions options;
  options.last_event = "end";
  EventStream events(context.api, TargetBuilder("/v1/builds").segment(build).str() + "/logs", options);
  for (;;) {
    CO_TRY(const std::optional<http::SseEvent> event, co_await events.next());
    if (!event)
      co_return fail(ErrorKind::unavailable, "build_log_lost", "the build's log ended without its end", "see 'space template builds'");
    CO_TRY(json::object data, parse_json_object(event->data));
    if (event->event == "end") co_return data;
    if (event->event != "log") continue;
    if (context.console.as_json())
      context.console.value(data);
    else
      context.console.note(printable(text_of(data, "message")));
  }
}

Error error_of(const json::object& build) {
  const json::object* error = object_of(build, "error");
  if (!error) return {ErrorKind::internal, "build_failed", "the build failed", ""};
  const std::string step = text_of(build, "failed_step");
  const bool number = !step.empty() && step.find_first_not_of("0123456789") == std::string::npos;
  const ErrorKind kind = text_of(build, "state") == "cancelled" ? ErrorKind::cancelled : ErrorKind::invalid_argument;
  return {kind, text_of(*error, "code"), (number ? fmt::format("step {}: ", step) : std::string()) + text_of(*error, "message"),
          text_of(*error, "next")};
}

}  // namespace

Task<int> build_on_server(Context& context, ServerBuildOptions options) {
  auto work = [&] { return prepare(options, context.console); };
  CO_TRY(Prepared prepared, co_await context.pool.run(work));
  for (const PackedFiles& files : prepared.files) CO_TRY_VOID(co_await upload(context, files));
  CO_TRY(const json::object begun, co_await context.api.send("POST", "/v1/builds", std::move(prepared.body)));
  CO_TRY(const json::object over, co_await follow(context, text_of(begun, "id")));
  if (text_of(over, "state") != "ready") co_return fail(error_of(over));
  context.console.result(over, fmt::format("template {} is {}", text_of(over, "template"), text_of(over, "digest")));
  co_return 0;
}

Task<int> publish_template(Context& context, std::string source, std::string name) {
  auto sandbox = co_await context.api.get(TargetBuilder("/v1/sandboxes").segment(source).str());
  if (!sandbox && sandbox.error().kind != ErrorKind::not_found) co_return fail(std::move(sandbox).error());
  json::object body{{"name", name}};
  body[sandbox ? "sandbox" : "checkpoint"] = source;
  const Spinner spinner(context.executor, "publishing " + name);
  auto answer = co_await context.api.send("POST", "/v1/templates", std::move(body));
  // Making its base may take longer than an answer is waited for; the server goes on, and the template appears when it is done.
  const std::string target = TargetBuilder("/v1/templates").segment(name.find(':') == name.npos ? name + ":latest" : name).str();
  for (const auto end = std::chrono::steady_clock::now() + kPublishing;
       !answer && is_late(answer.error()) && std::chrono::steady_clock::now() < end;) {
    co_await sleep_for(std::chrono::seconds(2));
    auto there = co_await context.api.get(target);
    if (there)
      answer = std::move(there);
    else if (there.error().kind != ErrorKind::not_found)
      answer = std::move(there);
  }
  if (!answer) co_return fail(std::move(answer).error());
  const json::object made = std::move(*answer);
  context.console.result(made, fmt::format("template {}:{} is {}", text_of(made, "name"), text_of(made, "tag"), text_of(made, "digest")));
  co_return 0;
}

Task<int> list_builds(Context& context) {
  CO_TRY(const json::array builds, co_await context.api.list("/v1/builds", "builds"));
  if (context.console.as_json()) {
    context.console.value(builds);
    co_return 0;
  }
  Table table({"BUILD", "TEMPLATE", "STATE", "AGE"});
  for (const json::value& item : builds) {
    if (!item.is_object()) continue;
    const json::object& one = item.get_object();
    table.add({text_of(one, "id"), text_of(one, "template"), text_of(one, "state"),
               format_age(text_of(one, "created_at"), system_clock().wall_ms())});
  }
  context.console.line(table.text());
  co_return 0;
}

Task<int> cancel_build(Context& context, std::string build) {
  CO_TRY_VOID(co_await context.api.send("DELETE", TargetBuilder("/v1/builds").segment(build).str()));
  co_return 0;
}

}  // namespace space::cli
