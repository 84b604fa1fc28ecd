// `space cp`: one file or a whole folder, into a sandbox or out of it, over the files API alone. No archive is packed or
// unpacked on either side, so the guest needs no program for it and nothing here parses what a guest composed.
//
// Kept: contents, modes, folders, symbolic links. Hard links become files; sockets and devices are skipped with a note.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "cli/client.h"

namespace space::cli {

struct CopyOptions {
  std::string from, to;  // one of them "SANDBOX:PATH"
  std::string user;      // in the guest; "": the template's default
};
Task<int> copy(Context& context, CopyOptions options);

struct RemotePath {
  std::string sandbox;
  std::string path;
};
// "k3…x:/tmp/a". A local name that looks like this is written ./k3…x:/tmp/a.
std::optional<RemotePath> parse_remote(std::string_view text);

// May a name that came from a guest become a file's name here? No slash, no NUL, not "." or "..", not empty.
bool is_plain_name(std::string_view name);

struct CopyResult {
  std::uint64_t files = 0, bytes = 0, skipped = 0;
};

// What both directions share: the API below one sandbox, and work done by a few coroutines side by side.
class Copier {
 public:
  Copier(Context& context, std::string sandbox, std::string user);
  Task<> up(std::filesystem::path from, std::string to);    // copy_up.cc
  Task<> down(std::string from, std::filesystem::path to);  // copy_down.cc
  const CopyResult& result() const { return result_; }

 private:
  using Job = std::function<Task<>()>;
  Task<> run_jobs();  // until the queue is empty and nobody works; jobs may add jobs; the first error ends it
  asio::awaitable<void> worker(Signal& change);
  std::string target(std::string_view call, std::string_view path) const;  // "…/files/CALL?path=…&user=…"

  Task<std::optional<json::object>> stat(std::string path);
  Task<> upload_file(std::filesystem::path from, std::string to);
  Task<> upload_link(std::filesystem::path from, std::string to);
  Task<> make_remote_folder(std::string path, unsigned mode);
  Task<> queue_tree(std::filesystem::path from, std::string to);
  Task<> download_file(std::string from, std::filesystem::path to, json::object entry);
  Task<> download_folder(std::string from, std::filesystem::path to, unsigned mode);
  Task<> make_local_links();

  Context& context_;
  std::string sandbox_;
  std::string user_;
  CopyResult result_;
  std::unique_ptr<ProgressBar> bar_;
  std::deque<Job> jobs_;
  std::size_t working_ = 0;
  std::optional<Error> error_;
  // Made after everything else: no file of this copy is then written through a link that came from the guest.
  std::vector<std::pair<std::filesystem::path, std::string>> links_;
  std::vector<std::pair<std::filesystem::path, unsigned>> folder_modes_;  // set last: a folder may be read-only
};

}  // namespace space::cli
