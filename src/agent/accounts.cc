#include "agent/accounts.h"

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"

namespace space::agent {
namespace {

constexpr std::size_t kMostGroups = 256;
constexpr std::size_t kLongestName = 256;

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // The highest value means "leave it as it is" to chown and setresuid: nobody's id.
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value == std::numeric_limits<std::uint32_t>::max())
    return std::nullopt;
  return value;
}

std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return part;
}

// Calls `each` with the fields of every line, while there are fewer than the limit.
template <class F>
void each_line(std::string_view text, std::size_t fields, F each) {
  text = text.substr(0, Accounts::kMostBytes);
  std::vector<std::string_view> parts;
  for (std::size_t lines = 0; !text.empty() && lines < Accounts::kMostLines; ++lines) {
    std::string_view line = next_part(text, '\n');
    parts.clear();
    const auto separators = static_cast<std::size_t>(std::count(line.begin(), line.end(), ':'));
    if (separators + 1 != fields || line.find('\0') != std::string_view::npos) continue;
    for (std::size_t i = 0; i < fields; ++i) parts.push_back(next_part(line, ':'));
    if (!parts[0].empty() && parts[0].size() <= kLongestName) each(parts);
  }
}

std::string read_regular(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat st = {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return {};
  return read_fd(fd, Accounts::kMostBytes).value_or("");
}

}  // namespace

Accounts::Accounts(std::string_view passwd, std::string_view group) {
  each_line(passwd, 7, [&](const std::vector<std::string_view>& f) {
    const auto uid = number(f[2]), gid = number(f[3]);
    if (!uid || !gid || f[5].size() > 4095 || f[6].size() > 4095) return;
    User user{std::string(f[0]), *uid, *gid, std::string(f[5]), std::string(f[6])};
    if (user.home.empty() || user.home[0] != '/') user.home = "/";
    if (user.shell.empty()) user.shell = "/bin/sh";
    users_.push_back(std::move(user));
  });
  each_line(group, 4, [&](const std::vector<std::string_view>& f) {
    const auto gid = number(f[2]);
    if (!gid) return;
    Group entry{std::string(f[0]), *gid, {}};
    for (std::string_view rest = f[3]; !rest.empty() && entry.members.size() < kMostLines;) {
      const std::string_view member = next_part(rest, ',');
      if (!member.empty()) entry.members.emplace_back(member);
    }
    groups_.push_back(std::move(entry));
  });
  if (std::none_of(users_.begin(), users_.end(), [](const User& u) { return u.name == "root"; }))
    users_.push_back({"root", 0, 0, "/root", "/bin/sh"});
  for (std::size_t i = 0; i < users_.size(); ++i) by_uid_.emplace(users_[i].uid, i);
  for (std::size_t i = 0; i < groups_.size(); ++i) by_gid_.emplace(groups_[i].gid, i);
}

Result<User> Accounts::find(std::string_view name) const {
  for (const User& user : users_)
    if (user.name == name) return user;
  if (const auto uid = number(name))
    if (const auto found = by_uid_.find(*uid); found != by_uid_.end()) return users_[found->second];
  return fail(ErrorKind::invalid_argument, "unknown_user", fmt::format("there is no user {} in the sandbox", name.substr(0, 64)),
              "name one that stands in the sandbox's /etc/passwd");
}

std::optional<gid_t> Accounts::group_id(std::string_view name) const {
  for (const Group& group : groups_)
    if (group.name == name) return group.gid;
  return number(name);
}

Identity Accounts::identity(const User& user) const {
  Identity identity{user.uid, user.gid, {user.gid}};
  for (const Group& group : groups_) {
    if (identity.groups.size() >= kMostGroups) break;
    const bool member = std::find(group.members.begin(), group.members.end(), user.name) != group.members.end();
    if (member && std::find(identity.groups.begin(), identity.groups.end(), group.gid) == identity.groups.end())
      identity.groups.push_back(group.gid);
  }
  return identity;
}

std::string_view Accounts::user_name(uid_t uid) const {
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end() ? std::string_view() : std::string_view(users_[found->second].name);
}

std::string_view Accounts::group_name(gid_t gid) const {
  const auto found = by_gid_.find(gid);
  return found == by_gid_.end() ? std::string_view() : std::string_view(groups_[found->second].name);
}

AccountFiles::Stamp AccountFiles::stamp_of(const std::string& path) {
  const auto ns = [](const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  struct stat st = {};
  if (::stat(path.c_str(), &st) != 0) return {};
  return {st.st_dev, st.st_ino, st.st_size, ns(st.st_mtim), ns(st.st_ctim)};
}

std::shared_ptr<const Accounts> AccountFiles::current() {
  const Stamp passwd = stamp_of(passwd_), group = stamp_of(group_);
  if (!accounts_ || passwd != passwd_stamp_ || group != group_stamp_) {
    accounts_ = std::make_shared<Accounts>(read_regular(passwd_), read_regular(group_));
    passwd_stamp_ = passwd;
    group_stamp_ = group;
  }
  return accounts_;
}

}  // namespace space::agent
