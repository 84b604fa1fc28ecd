// `space cp`: one file or a whole folder, into a sandbox or out of it, over the files API alone. No archive is packed or
// unpacked on either side, so the guest needs no program for it and nothing here parses what a guest composed.
//
// Kept: contents, modes, folders, symbolic links. Hard links become files; sockets and devices are skipped with a note. What fails is
// told by name, and the rest of a folder is copied all the same, unless it would fail by the same: no server, no sandbox that answers.
#pragma once

#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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

struct CopyFailure {
  std::string path;  // of what could not be copied, as bytes
  Error error;
};

struct CopyResult {
  std::uint64_t files = 0, bytes = 0, skipped = 0, failed = 0;
  std::vector<CopyFailure> failures;  // the first of them: a guest's folder may hold any number
};

// What both directions share: the API below one sandbox, and work done by a few coroutines side by side.
class Copier {
 public:
  Copier(Context& context, std::string sandbox, std::string user);
  // An error is of everything, or of the one file that was asked for; those of single files of a folder stand in `result`.
  Task<> up(std::filesystem::path from, std::string to);    // copy_up.cc
  Task<> down(std::string from, std::filesystem::path to);  // copy_down.cc
  const CopyResult& result() const { return result_; }

 private:
  struct Job {
    std::string path;  // what it copies
    std::function<Task<>()> work;
  };
  Task<> run_jobs();  // until the queue is empty and nobody works; jobs may add jobs; an error of all of them ends it
  Result<> failed(const std::string& path, const Error& error);  // tells of it; fails again when the others would as well
  asio::awaitable<void> worker(Signal& change);
  std::string target(std::string_view call, std::string_view path) const;  // "…/files/CALL?path=…&user=…"

  Task<std::optional<json::object>> stat(std::string path);
  Task<> upload_file(std::filesystem::path from, std::string to);
  Task<> upload_link(std::filesystem::path from, std::string to);
  Task<> make_remote_folder(std::string path, unsigned mode);
  Task<> queue_tree(std::filesystem::path from, std::string to);
  Task<> download_file(std::string from, std::filesystem::path to, json::object entry);
  Task<> download_folder(std::string from, std::filesystem::path to, unsigned mode);
  Result<> make_local_links();

  Context& context_;
  std::string sandbox_;
  std::string user_;
  CopyResult result_;
  std::unique_ptr<ProgressBar> bar_;
  std::deque<Job> jobs_;
  std::size_t working_ = 0;
  std::size_t unanswered_ = 0;  // files in a row for which the agent had no answer
  std::optional<Error> error_;
  // Made after everything else: no file of this copy is then written through a link that came from the guest.
  struct Link {
    std::string from;
    std::filesystem::path to;
    std::string points_to;
  };
  std::vector<Link> links_;
  std::vector<std::pair<std::filesystem::path, unsigned>> folder_modes_;  // set last: a folder may be read-only
};

}  // namespace space::cli
