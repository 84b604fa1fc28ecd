// Users and groups of the guest, read from its own /etc/passwd and /etc/group (passwd(5), group(5)) without NSS: the agent is a
// static program, and the files may have been written by anybody, so they are bounded and lines that make no sense are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/result.h"

namespace space::agent {

struct User {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string home = "/";
  std::string shell = "/bin/sh";
};

// What a thread or process runs under.
struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

// One reading of both files; immutable, so any thread may hold it.
class Accounts {
 public:
  static constexpr std::size_t kMostBytes = 1 << 20;  // of each file
  static constexpr std::size_t kMostLines = 10'000;

  Accounts(std::string_view passwd, std::string_view group);  // root is there even when the file lacks it
  // By name, else by number. Unknown: invalid_argument/unknown_user.
  Result<User> find(std::string_view name) const;
  std::optional<gid_t> group_id(std::string_view name_or_number) const;
  Identity identity(const User& user) const;    // with supplementary groups, at most 256
  std::string_view user_name(uid_t uid) const;  // "" when there is none
  std::string_view group_name(gid_t gid) const;

 private:
  struct Group {
    std::string name;
    gid_t gid = 0;
    std::vector<std::string> members;
  };
  std::vector<User> users_;
  std::vector<Group> groups_;
  std::map<uid_t, std::size_t> by_uid_;
  std::map<gid_t, std::size_t> by_gid_;
};

// The files as they are now: read again only when their state changed. For the loop.
class AccountFiles {
 public:
  explicit AccountFiles(std::string passwd = "/etc/passwd", std::string group = "/etc/group")
      : passwd_(std::move(passwd)), group_(std::move(group)) {}
  std::shared_ptr<const Accounts> current();

 private:
  // What changes when a file does.
  struct Stamp {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = -1, modified_ns = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::string& path);

  std::string passwd_, group_;
  Stamp passwd_stamp_, group_stamp_;
  std::shared_ptr<const Accounts> accounts_;
};

}  // namespace space::agent
