#include "build/aliases.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace space::build {
namespace {

constexpr std::size_t kAliasesBytes = 16 << 20, kMostAliases = 100'000;

}  // namespace

Result<> Aliases::load() {
  auto text = read_file(file_, kAliasesBytes);
  if (!text) return text.error().kind == ErrorKind::not_found ? Result<>{} : fail(std::move(text).error());
  auto object = parse_json_object(*text, kAliasesBytes);
  if (!object)
    return fail(ErrorKind::corrupt, "aliases_unreadable", "the list of E2B's template names cannot be read: " + object.error().message);
  JsonReader top(*object);
  const json::array* items = top.array("aliases", kMostAliases);
  TRY_VOID(top.done());
  if (!items) return {};
  for (const json::value& item : *items) {
    if (!item.is_object()) continue;
    JsonReader r(item.get_object());
    const std::string name = r.text("name", 1, 64), tag = r.text("tag", 1, 64);
    AliasTag target{r.text("reference", 1, 160), r.text("build", 0, 64, ""), r.number("created_ms", 0, INT64_MAX, 0)};
    if (r.done()) set(name, tag, std::move(target));
  }
  return {};
}

std::string Aliases::text() const {
  json::array items;
  for (const auto& [name, tags] : all_)
    for (const auto& [tag, target] : tags)
      items.push_back(json::object{
          {"name", name}, {"tag", tag}, {"reference", target.reference}, {"build", target.build}, {"created_ms", target.created_ms}});
  const json::object out{{"aliases", std::move(items)}};
  return json::serialize(out) + "\n";
}

Result<> Aliases::save(const std::filesystem::path& file, const std::string& text) {
  TRY_VOID(make_directories(file.parent_path()));
  return write_file_durable(file, text);
}

std::optional<AliasTag> Aliases::find(const std::string& name, const std::string& tag) const {
  const auto* known = tags(name);
  if (!known) return std::nullopt;
  const auto found = known->find(tag);
  return found == known->end() ? std::nullopt : std::optional(found->second);
}

const std::map<std::string, AliasTag>* Aliases::tags(const std::string& name) const {
  const auto found = all_.find(name);
  return found == all_.end() ? nullptr : &found->second;
}

void Aliases::set(const std::string& name, const std::string& tag, AliasTag target) { all_[name][tag] = std::move(target); }

void Aliases::drop(const std::string& name, const std::string& tag) {
  const auto found = all_.find(name);
  if (found == all_.end()) return;
  found->second.erase(tag);
  if (found->second.empty()) all_.erase(found);
}

void Aliases::drop_name(const std::string& name) { all_.erase(name); }

std::optional<std::string> Aliases::name_of(const std::string& reference) const {
  const std::string name = reference.substr(0, reference.find(':'));
  return all_.contains(name) ? std::optional(name) : std::nullopt;
}

}  // namespace space::build
