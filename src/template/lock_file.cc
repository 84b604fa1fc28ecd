#include "template/lock_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "template/layout.h"

namespace space::tmpl {
namespace {

constexpr std::size_t kMostPackages = 20'000;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (;;) {
    const auto space = line.find(' ');
    out.push_back(line.substr(0, space));
    if (space == std::string_view::npos) return out;
    line.remove_prefix(space + 1);
  }
}

bool is_package_name(std::string_view text) {  // Debian Policy 5.6.1
  return text.size() >= 2 && text.size() <= 128 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.") == std::string_view::npos && text.front() != '.' &&
         text.front() != '-' && text.front() != '+';
}

bool is_hash(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

}  // namespace

Result<LockFile> parse_lock_file(std::string_view text) {
  LockFile out;
  auto bad = [](std::size_t line, std::string_view what) {
    return fail(ErrorKind::invalid_argument, "template_lock", fmt::format("line {} of the lock: {}", line, what),
                "use a lock that a template build wrote, unchanged");
  };
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return bad(number, "it does not end; the file is cut");
    const auto line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (number == 1) {
      if (line != "space-lock 1") return bad(number, "'space-lock 1' is expected");
      continue;
    }
    if (line.empty() || line.front() == '#') continue;
    const auto words = words_of(line);
    if (words[0] == "source" && words.size() == 4 && words[1].starts_with("http")) {
      out.sources.emplace_back(line.substr(7));
      continue;
    }
    if (words[0] != "package" || words.size() != 5)
      return bad(number, "'package NAME VERSION ARCHITECTURE SHA256' or 'source URI SUITE COMPONENT' is expected");
    if (!is_package_name(words[1])) return bad(number, "that is not a package's name");
    if (!is_version(words[2])) return bad(number, "that is not a package's version");
    if (words[3] != "amd64" && words[3] != "all") return bad(number, "the architecture must be amd64 or all");
    if (!is_hash(words[4])) return bad(number, "a SHA-256 in 64 small hexadecimal digits is expected");
    if (out.packages.size() == kMostPackages) return bad(number, "too many packages");
    out.packages.push_back({std::string(words[1]), std::string(words[2]), std::string(words[3]), std::string(words[4])});
  }
  if (number == 0) return bad(1, "it is empty");
  if (out.packages.empty()) return bad(number, "it names no package");
  std::sort(out.packages.begin(), out.packages.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(out.packages.begin(), out.packages.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != out.packages.end()) return bad(number, fmt::format("package {} stands there twice", twice->name));
  return out;
}

}  // namespace space::tmpl
