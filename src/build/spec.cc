#include "build/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/digest.h"
#include "base/encoding.h"

namespace space::build {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

tl::unexpected<Error> wrong(std::size_t step, std::string_view what) {
  return fail(ErrorKind::invalid_argument, "invalid_step", fmt::format("step {} {}", step + 1, what), "see docs/templates.md, \"Steps\"");
}

std::optional<StepKind> kind_of(std::string_view type) {
  if (type == "RUN") return StepKind::run;
  if (type == "COPY" || type == "ADD") return StepKind::copy;
  if (type == "ENV" || type == "ARG") return StepKind::env;
  if (type == "WORKDIR") return StepKind::workdir;
  if (type == "USER") return StepKind::user;
  return std::nullopt;
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

bool is_variable(std::string_view name) {
  return !name.empty() && name.size() <= 256 && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

bool is_user(std::string_view name) {
  return !name.empty() && name.size() <= 32 && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
}

bool is_owner(std::string_view owner) {
  const std::size_t colon = owner.find(':');
  return is_user(owner.substr(0, colon)) && (colon == owner.npos || is_user(owner.substr(colon + 1)));
}

// A source in the context: relative, and nothing in it leads out.
bool is_source(std::string_view path) {
  if (path.empty() || path.size() > 4096 || path.front() == '/' || has_control(path)) return false;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    if (path.substr(0, slash) == "..") return false;
    if (slash == path.npos) break;
    path.remove_prefix(slash + 1);
  }
  return true;
}

Result<> check(const Step& step, std::size_t at) {
  const auto& a = step.args;
  for (const std::string& arg : a)
    if (arg.find('\0') != arg.npos) return wrong(at, "holds a NUL");
  switch (step.kind) {
    case StepKind::run:
      if (a.empty() || a.size() > 2 || a[0].empty()) return wrong(at, "(RUN) needs a line, and at most a user");
      if (a.size() == 2 && !a[1].empty() && !is_user(a[1])) return wrong(at, "(RUN) names no user");
      return {};
    case StepKind::copy:
      if (a.size() < 2 || a.size() > 4) return wrong(at, "(COPY) needs a source and a destination, and at most an owner and a mode");
      if (!is_source(a[0])) return wrong(at, "(COPY) has a source outside the build's files");
      if (a[1].empty() || a[1].size() > 4096 || has_control(a[1])) return wrong(at, "(COPY) has no usable destination");
      if (a.size() > 2 && !a[2].empty() && !is_owner(a[2])) return wrong(at, "(COPY) names no owner (user or user:group)");
      if (a.size() > 3 && !a[3].empty() && (a[3].size() > 5 || a[3].find_first_not_of("01234567") != std::string::npos))
        return wrong(at, "(COPY) has a mode that is not octal");
      if (!is_upload(step.files)) return wrong(at, "(COPY) does not name its uploaded files");
      return {};
    case StepKind::env:
      if (a.empty() || a.size() % 2 != 0) return wrong(at, "(ENV) needs pairs of names and values");
      for (std::size_t i = 0; i < a.size(); i += 2)
        if (!is_variable(a[i])) return wrong(at, "(ENV) has a name that is none: letters, digits and '_', not first a digit");
      return {};
    case StepKind::workdir:
      if (a.size() != 1 || a[0].empty() || a[0].size() > 4096 || has_control(a[0])) return wrong(at, "(WORKDIR) needs one path");
      return {};
    case StepKind::user:
      if (a.empty() || a.size() > 2 || !is_user(a[0])) return wrong(at, "(USER) needs the name of a user");
      return {};
  }
  return {};
}

}  // namespace

bool is_upload(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos; }

std::string_view to_string(StepKind kind) {
  switch (kind) {
    case StepKind::run:
      return "RUN";
    case StepKind::copy:
      return "COPY";
    case StepKind::env:
      return "ENV";
    case StepKind::workdir:
      return "WORKDIR";
    case StepKind::user:
      return "USER";
  }
  return "";
}

std::string describe(const Step& step) {
  std::string out(to_string(step.kind));
  const std::size_t shown = step.kind == StepKind::run ? 1 : step.kind == StepKind::copy ? 2 : step.args.size();
  for (std::size_t i = 0; i < std::min(shown, step.args.size()); ++i)
    out += (step.kind == StepKind::env && i % 2 == 1 ? "=" : " ") + step.args[i];
  if (const std::size_t line = out.find_first_of("\r\n"); line != out.npos) out = out.substr(0, line) + " …";
  return out.size() > 300 ? out.substr(0, 300) + " …" : out;
}

Result<std::vector<Step>> read_steps(const json::array& items) {
  std::vector<Step> out;
  for (const json::value& item : items) {
    const std::size_t at = out.size();
    if (!item.is_object()) return wrong(at, "is not an object");
    JsonReader r(item.get_object(), fmt::format("steps[{}]", at));
    const auto kind = kind_of(r.text("type", 1, 16));
    Step step;
    step.args = r.texts("args", 512, kMostText);
    step.force = r.boolean("force", false);
    step.files = r.text("filesHash", 0, 64, "");
    r.ignore_unknown();
    TRY_VOID(r.done());
    if (!kind) return wrong(at, "is none of RUN, COPY, ADD, ENV, ARG, WORKDIR and USER");
    step.kind = *kind;
    TRY_VOID(check(step, at));
    out.push_back(std::move(step));
  }
  return out;
}

Result<Spec> read_spec(const json::object& body) {
  JsonReader r(body);
  Spec spec;
  spec.parent = r.text("parent", 1, 160, "base:latest");
  spec.image = r.text("image", 0, 64, "");
  spec.start = r.text("start", 0, kMostCommand, "");
  spec.ready = r.text("ready", 0, kMostCommand, "");
  spec.cpus = r.optional_number("cpus", 1, 64);
  spec.memory_mib = r.optional_number("memory_mib", 128, 1 << 20);
  spec.disk_mib = r.optional_number("disk_mib", 256, 1 << 24);
  spec.force = r.boolean("force", false);
  const json::array* steps = r.array("steps", kMostSteps);
  if (!spec.image.empty() && !is_upload(spec.image)) r.reject("image", "must be the name of an upload: 64 hex digits");
  if (spec.start.find('\0') != std::string::npos || spec.ready.find('\0') != std::string::npos)
    r.reject("start", "and ready must not hold NUL");
  TRY_VOID(r.done());
  if (steps) {
    TRY(spec.steps, read_steps(*steps));
  }
  return spec;
}

json::object write_spec(const Spec& spec) {
  json::array steps;
  for (const Step& step : spec.steps) {
    json::object one{{"type", to_string(step.kind)}, {"args", json::value_from(step.args)}, {"force", step.force}};
    if (!step.files.empty()) one["filesHash"] = step.files;
    steps.push_back(std::move(one));
  }
  json::object out{{"parent", spec.parent}, {"image", spec.image}, {"steps", std::move(steps)},
                   {"start", spec.start},   {"ready", spec.ready}, {"force", spec.force}};
  if (spec.cpus) out["cpus"] = *spec.cpus;
  if (spec.memory_mib) out["memory_mib"] = *spec.memory_mib;
  if (spec.disk_mib) out["disk_mib"] = *spec.disk_mib;
  return out;
}

std::string expand(std::string_view text, const std::map<std::string, std::string>& env) {
  const auto value = [&](std::string_view name) {
    const auto found = env.find(std::string(name));
    return found == env.end() ? std::string() : found->second;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '$' || text[i + 1] == '\\')) {
      out += text[++i];
      continue;
    }
    if (text[i] != '$' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    if (text[i + 1] == '{') {
      const std::size_t close = text.find('}', i);
      const std::string_view inner = close == text.npos ? std::string_view() : text.substr(i + 2, close - i - 2);
      const std::size_t colon = inner.find(':');
      const std::string_view name = inner.substr(0, colon);
      if (!is_variable(name) ||
          (colon != inner.npos && (colon + 1 >= inner.size() || (inner[colon + 1] != '-' && inner[colon + 1] != '+')))) {
        out += text[i];
        continue;
      }
      const std::string found = value(name);
      if (colon == inner.npos)
        out += found;
      else if (inner[colon + 1] == '-')
        out += found.empty() ? std::string(inner.substr(colon + 2)) : found;
      else if (!found.empty())
        out += inner.substr(colon + 2);
      i = close;
      continue;
    }
    std::size_t end = i + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    const std::string_view name = text.substr(i + 1, end - i - 1);
    if (!is_variable(name)) {
      out += text[i];
      continue;
    }
    out += value(name);
    i = end - 1;
  }
  return out;
}

Result<Context> after(Context context, const Step& step) {
  const auto& a = step.args;
  switch (step.kind) {
    case StepKind::run:
    case StepKind::copy:
      break;
    case StepKind::env:
      for (std::size_t i = 0; i + 1 < a.size(); i += 2) context.env[a[i]] = expand(a[i + 1], context.env);
      break;
    case StepKind::workdir: {
      const std::string path = expand(a[0], context.env);
      if (path.starts_with('/') || path.starts_with('~'))
        context.workdir = path;
      else
        context.workdir = (context.workdir.empty() ? std::string() : context.workdir) + "/" + path;
      if (!context.workdir.starts_with('/'))
        return fail(ErrorKind::invalid_argument, "invalid_step", "a WORKDIR must be a path from the root or from the one before",
                    "write /path");
      break;
    }
    case StepKind::user:
      context.user = a[0];
      break;
  }
  std::size_t bytes = 0;
  for (const auto& [name, value] : context.env) bytes += name.size() + value.size();
  if (context.env.size() > 256 || bytes > kMostText)
    return fail(ErrorKind::too_large, "environment_too_large", "the environment of a template has at most 256 variables and 32 KiB",
                "set fewer or shorter variables");
  return context;
}

std::string root_key(std::string_view parent_digest, std::string_view image_digest, std::int64_t cpus, std::int64_t memory_mib,
                     std::int64_t disk_mib) {
  const std::string text =
      fmt::format("build 1\nparent {}\nimage {}\nsize {} {} {}\n", parent_digest, image_digest, cpus, memory_mib, disk_mib);
  return hex_encode(sha256(std::string_view(text)));
}

std::string layer_key(std::string_view below, const Step& step, std::string_view files) {
  // As JSON, so that no two lists of arguments look the same.
  const json::array all{below, to_string(step.kind), json::value_from(step.args), files};
  const std::string text = json::serialize(all);
  return hex_encode(sha256(std::string_view(text)));
}

bool changes_disk(const Step& step) { return step.kind != StepKind::env; }

}  // namespace space::build
