#include "template/trust_policy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "base/file.h"
#include "template/release.h"
#include "template/toml_file.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kPolicyBytes = 64 << 10, kMostSigners = 100, kMostEntries = 1000;

// "allow" or "refuse"; what is not said is refused.
Result<bool> allowed(const toml::table& table, std::string_view key, const Complaint& bad) {
  if (!table.contains(key)) return false;
  const auto word = table[key].value_exact<std::string>();
  if (!word || (*word != "allow" && *word != "refuse")) return bad(fmt::format("{} must be \"allow\" or \"refuse\"", key));
  return *word == "allow";
}

// A list that is there names something: an empty one would mean the opposite of what it says.
Result<std::vector<std::string>> words(const toml::table& table, const std::string& key, const Complaint& bad) {
  std::vector<std::string> out;
  if (!table.contains(key)) return out;
  const auto* list = table[key].as_array();
  if (!list || list->empty() || list->size() > kMostEntries)
    return bad(fmt::format("{} must be a list of 1 to {} texts", key, kMostEntries));
  for (const auto& item : *list) {
    const auto word = item.value_exact<std::string>();
    if (!word || word->empty() || word->size() > 4096) return bad(fmt::format("{} must hold texts", key));
    out.push_back(*word);
  }
  return out;
}

bool is_pattern(std::string_view text) {
  if (text == "*") return true;
  if (text.ends_with('*')) text.remove_suffix(1);
  return text.find(':') == text.npos && parse_reference(text).has_value();
}

Result<TrustPolicy::Signer> read_signer(const toml::node& node, const Complaint& bad) {
  const auto* table = node.as_table();
  if (!table) return bad("[[signer]] must be a table");
  if (const char* key = unknown_key(*table, {"name", "key", "templates"})) return bad(fmt::format("signer.{} is not known", key));
  TrustPolicy::Signer signer;
  const auto name = (*table)["name"].value_exact<std::string>();
  if (!name || name->empty() || name->size() > 100) return bad("signer.name must be a text of 1 to 100 bytes");
  signer.name = *name;
  const auto text = (*table)["key"].value_exact<std::string>();
  const auto key = text ? parse_public_key(*text) : std::nullopt;
  if (!key) return bad(fmt::format("the key of signer '{}' must be \"ed25519:\" and 64 small hexadecimal digits", signer.name));
  signer.key = *key;
  TRY(signer.templates, words(*table, "templates", bad));
  for (const auto& pattern : signer.templates)
    if (!is_pattern(pattern))
      return bad(fmt::format("'{}' of signer '{}' is neither a template's name nor the beginning of one with '*'", pattern, signer.name));
  return signer;
}

Result<std::string> read_guarded(const fs::path& file, const Complaint& bad) {
  TRY(const Fd fd, open_file(file, O_RDONLY));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "fstat " + file.string());
  if ((st.st_uid != 0 && st.st_uid != ::geteuid()) || (st.st_mode & 022) != 0)
    return bad("others than root can change it (chown root, chmod 644)");
  return read_fd(fd, kPolicyBytes);
}

}  // namespace

bool TrustPolicy::Signer::may_sign(std::string_view template_name) const {
  if (templates.empty()) return true;
  for (std::string_view pattern : templates) {
    const bool open = pattern.ends_with('*');
    if (open) pattern.remove_suffix(1);
    if (open ? template_name.starts_with(pattern) : template_name == pattern) return true;
  }
  return false;
}

Result<TrustPolicy> read_trust_policy(const fs::path& file) {
  const Complaint bad = [&](std::string_view what) {
    return fail(ErrorKind::invalid_argument, "trust_policy", fmt::format("{}: {}", file.string(), what),
                "docs/supply.md has an example of every key");
  };
  TRY(const auto text, read_guarded(file, bad));
  TRY(const auto table, read_toml(text, bad));
  if (const char* key = unknown_key(table, {"format", "unsigned", "published", "stores", "signer"}))
    return bad(fmt::format("'{}' is not known", key));
  if (table["format"].value_exact<std::int64_t>() != 1) return bad("format = 1 is expected");

  TrustPolicy policy;
  TRY(policy.allow_unsigned, allowed(table, "unsigned", bad));
  TRY(policy.allow_published, allowed(table, "published", bad));
  TRY(const auto stores, words(table, "stores", bad));
  for (const auto& store : stores) {
    if (!store.starts_with('/')) return bad(fmt::format("'{}' of stores must be an absolute path", store));
    std::error_code error;
    policy.stores.push_back(fs::weakly_canonical(store, error));
    if (error) return bad(fmt::format("'{}' of stores: {}", store, error.message()));
  }
  if (const auto* signers = table["signer"].as_array(); signers && signers->size() <= kMostSigners) {
    for (const auto& one : *signers) {
      TRY(auto signer, read_signer(one, bad));
      for (const auto& other : policy.signers)
        if (other.name == signer.name || other.key == signer.key) return bad(fmt::format("signer '{}' stands there twice", signer.name));
      policy.signers.push_back(std::move(signer));
    }
  } else if (table.contains("signer")) {
    return bad(fmt::format("signers are written as at most {} tables [[signer]]", kMostSigners));
  }
  if (!policy.allow_unsigned && policy.signers.empty())
    return bad("it refuses what is unsigned and names no [[signer]]: nothing could be loaded");
  return policy;
}

}  // namespace space::tmpl
