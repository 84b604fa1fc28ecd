// What a client asks for when it builds a template, read strictly, and what follows from it without a VM: the context that the
// steps thread through, and the keys of layers. The form is that of E2B's SDKs, which the native API shares.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace space::build {

inline constexpr std::size_t kMostSteps = 256, kMostText = 32 << 10, kMostCommand = 16 << 10, kMostTags = 16;

enum class StepKind { run, copy, env, workdir, user };

struct Step {
  StepKind kind = StepKind::run;
  // RUN [line, user?], COPY [source, destination, owner?, mode?], ENV [name, value, …], WORKDIR [path], USER [name, "true" for sudo?]
  std::vector<std::string> args;
  std::string files;   // of COPY: the upload with them
  bool force = false;  // it and all that follow run, whatever is kept
};

struct Spec {
  std::string parent = "base:latest";  // a template; of an image, the one whose VM unpacks it
  std::string image;                   // "": none; else the upload with an OCI layout or a docker archive
  std::vector<Step> steps;
  std::string start, ready;
  std::optional<std::int64_t> cpus, memory_mib, disk_mib;  // absent: the parent's
  bool force = false;
};

// {"parent"?, "image"?, "steps", "start"?, "ready"?, "cpus"?, "memory_mib"?, "disk_mib"?, "force"?}; invalid_field names what is wrong.
Result<Spec> read_spec(const json::object& body);
json::object write_spec(const Spec& spec);
Result<std::vector<Step>> read_steps(const json::array& items);
std::string_view to_string(StepKind kind);
std::string describe(const Step& step);  // one line for the log, as a Dockerfile would have it

// Who runs the next step, where, with what; at the end the defaults of the template's sandboxes.
struct Context {
  std::string user = "user", workdir;  // "": the user's home
  std::map<std::string, std::string> env;
};
// What a step makes of it. Nothing but env, workdir and user change it.
Result<Context> after(Context context, const Step& step);
// $NAME, ${NAME}, ${NAME:-word}, ${NAME:+word}; a backslash keeps a dollar. Nothing is run.
std::string expand(std::string_view text, const std::map<std::string, std::string>& env);

// The key of what a build starts from, and of a layer on another. `files`: the digest of the uploaded bytes, not the name they have.
std::string root_key(std::string_view parent_digest, std::string_view image_digest, std::int64_t cpus, std::int64_t memory_mib,
                     std::int64_t disk_mib);
std::string layer_key(std::string_view below, const Step& step, std::string_view files);

bool changes_disk(const Step& step);  // else it is not worth a layer

// Whether `text` can be the name of an upload: 64 hex digits.
bool is_upload(std::string_view text);

}  // namespace space::build
