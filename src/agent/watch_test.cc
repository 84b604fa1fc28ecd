// Changes as a real agent tells them.
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>

#include "agent/test_support.h"
#include "agent/watch.h"
#include "http/sse.h"

namespace space::agent {
namespace {

namespace fs = std::filesystem;

class Watching : public AgentTest {
 protected:
  struct Watch {
    std::unique_ptr<http::ClientStream> stream;
    http::SseReader reader;
  };
  static Task<std::unique_ptr<http::ClientStream>> open(wire::AgentClient& client, std::string target) {
    http::Request request;
    request.target = std::move(target);
    CO_TRY(auto stream, co_await client.http().open(std::move(request)));
    CO_TRY_VOID(co_await stream->finish_request());
    CO_TRY(const http::Response head, co_await stream->head());
    if (head.status != 200) {
      CO_TRY(const std::string body, co_await stream->read_all(65536));
      co_return fail(http::error_from_response(head.status, body));
    }
    co_return stream;
  }
  // "created /x file" lines, without the test's folder, until `count` came.
  static Task<std::vector<std::string>> events(Watch& watch, std::string root, std::size_t count) {
    std::vector<std::string> out;
    std::array<std::byte, 4096> buffer;
    while (out.size() < count) {
      CO_TRY(const std::size_t n, co_await watch.stream->read(buffer));
      if (n == 0) break;
      CO_TRY(const auto events, watch.reader.feed(as_text(std::span(buffer).first(n))));
      for (const auto& event : events) {
        const auto data = parse_json_object(event.data).value();
        const auto shorten = [&](std::string_view field) { return std::string(data.at(field).as_string()).substr(root.size()); };
        out.push_back(event.event + " " + shorten("path") + (data.contains("from") ? " from " + shorten("from") : "") + " " +
                      std::string(data.at("kind").as_string()));
      }
    }
    co_return out;
  }
  Watch watch(const std::string& more) {
    fs::create_directories(path("w"));
    auto stream = wait(open(*client_, "/v1/files/watch?path=" + path("w") + more));
    EXPECT_TRUE(stream) << describe(stream.error());
    return {std::move(*stream), http::SseReader()};
  }
  std::vector<std::string> next(Watch& w, std::size_t count) { return wait(events(w, path("w"), count)).value(); }
  void write(const std::string& name) { std::ofstream(path("w/" + name)) << "content"; }
};

TEST_F(Watching, TellsWhatHappens) {
  auto w = watch("");
  write("a");
  EXPECT_EQ(next(w, 2), (std::vector<std::string>{"created /a file", "modified /a file"}));
  fs::rename(path("w/a"), path("w/b"));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"moved /b from /a file"});
  fs::permissions(path("w/b"), fs::perms(0600));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"attributes /b file"});
  fs::rename(path("w/b"), path("elsewhere"));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"removed /b file"});
  fs::rename(path("elsewhere"), path("w/c"));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"created /c file"});
  fs::create_directory(path("w/d"));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"created /d dir"});
  write("d/below");
  fs::remove(path("w/c"));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"removed /c file"}) << "what is below a folder is not told without recursive";
}

TEST_F(Watching, FollowsNewAndMovedFoldersWhenRecursive) {
  fs::create_directories(path("w/old/deep"));
  auto w = watch("&recursive=1");
  write("old/deep/f");
  EXPECT_EQ(next(w, 2), (std::vector<std::string>{"created /old/deep/f file", "modified /old/deep/f file"}));
  fs::create_directories(path("w/new/er"));
  auto made = next(w, 2);
  EXPECT_EQ(made, (std::vector<std::string>{"created /new dir", "created /new/er dir"}));
  write("new/er/g");
  EXPECT_EQ(next(w, 2), (std::vector<std::string>{"created /new/er/g file", "modified /new/er/g file"}));
  fs::rename(path("w/new"), path("w/moved"));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"moved /moved from /new dir"});
  fs::remove(path("w/moved/er/g"));
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"removed /moved/er/g file"});
}

TEST_F(Watching, AnUploadIsOneChangeWithoutItsTemporaryName) {
  auto w = watch("");
  ASSERT_EQ(code_of(ask("PUT", "/v1/files/content?path=" + path("w/up"), "one")), "");
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"created /up file"});
  ASSERT_EQ(code_of(ask("PUT", "/v1/files/content?path=" + path("w/up"), "two")), "");
  EXPECT_EQ(next(w, 1), std::vector<std::string>{"modified /up file"});
}

TEST_F(Watching, EndsWithItsPath) {
  auto w = watch("");
  fs::remove_all(path("w"));
  EXPECT_EQ(next(w, 99), std::vector<std::string>{"removed  dir"});
}

TEST_F(Watching, NeedsThePathAndTheRight) {
  EXPECT_EQ(wait(open(*client_, "/v1/files/watch?path=" + path("none"))).error().code, "no_such_file");
  fs::create_directory(path("closed"));
  fs::permissions(path("closed"), fs::perms(0700));
  EXPECT_EQ(wait(open(*client_, "/v1/files/watch?user=daemon&path=" + path("closed"))).error().code, "access_denied");
}

// A watcher of its own: what happens before `told` is called has happened before the watcher reads of it.
class Watched : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  void touch(const std::string& name) { ::close(::open(at(name).c_str(), O_CREAT | O_WRONLY, 0600)); }
  // "created /x file" lines, without the test's folder.
  std::vector<std::string> told() {
    std::vector<std::string> out;
    for (const WatchEvent& event : watcher_.digest()) {
      const auto shorten = [&](const std::string& path) { return path.empty() ? path : path.substr(folder_.path().string().size()); };
      out.push_back(std::string(to_string(event.change)) + " " + shorten(event.path) + (event.from.empty() ? "" : " from ") +
                    shorten(event.from) + (event.folder ? " dir" : " file"));
    }
    return out;
  }

  TempDir folder_ = TempDir::make(fs::temp_directory_path(), "watch-test-").value();
  Watcher watcher_ = Watcher::open(folder_.path(), true).value();
};

TEST_F(Watched, FoldersRenamedRightAfterTheyWereMade) {
  fs::create_directories(at("a/x"));
  touch("a/x/early");
  fs::rename(at("a"), at("b"));
  fs::rename(at("b"), at("c"));
  EXPECT_EQ(told(), (std::vector<std::string>{"created /a dir", "moved /b from /a dir", "moved /c from /b dir", "created /c/x dir",
                                              "created /c/x/early file"}));
  touch("c/f");
  touch("c/x/late");
  EXPECT_EQ(told(), (std::vector<std::string>{"created /c/f file", "created /c/x/late file"}));
  fs::create_directory(at("gone"));
  fs::remove(at("gone"));
  EXPECT_EQ(told(), (std::vector<std::string>{"created /gone dir", "removed /gone dir"}));
}

TEST_F(Watched, FoldersWhoseNameAnotherHasByNow) {
  fs::create_directory(at("a"));
  fs::create_directory(at("a/first"));
  fs::rename(at("a"), at("b"));
  fs::create_directory(at("a"));
  told();
  touch("a/1");
  touch("b/2");
  touch("b/first/3");
  EXPECT_EQ(told(), (std::vector<std::string>{"created /a/1 file", "created /b/2 file", "created /b/first/3 file"}));
}

TEST_F(Watched, FoldersThatReplaceAnEmptyOne) {
  fs::create_directory(at("old"));
  fs::create_directory(at("new"));
  touch("new/x");
  told();
  fs::rename(at("new"), at("old"));
  EXPECT_EQ(told(), std::vector<std::string>{"moved /old from /new dir"});
  fs::rename(at("old"), at("third"));
  EXPECT_EQ(told(), std::vector<std::string>{"moved /third from /old dir"}) << "it is watched: nothing in it is new";
  touch("third/f");
  EXPECT_EQ(told(), std::vector<std::string>{"created /third/f file"});
}

TEST_F(Watched, NamesThatComeBackAreToldAgain) {
  fs::create_directory(at("p"));
  touch("p/f");
  EXPECT_EQ(told(), (std::vector<std::string>{"created /p dir", "created /p/f file"}));
  const TempDir elsewhere = TempDir::make(fs::temp_directory_path(), "watch-test-").value();
  fs::rename(at("p/f"), elsewhere.path() / "f");
  EXPECT_EQ(told(), std::vector<std::string>{"removed /p/f file"});
  touch("p/f");
  EXPECT_EQ(told(), std::vector<std::string>{"created /p/f file"});
  fs::rename(elsewhere.path() / "f", at("p/f"));
  EXPECT_EQ(told(), std::vector<std::string>{"created /p/f file"}) << "another file has the name";
}

TEST(Watcher, SaysThatItMissedSomething) {
  auto folder = TempDir::make(fs::temp_directory_path(), "watch-test-").value();
  fs::create_directory(folder.path() / "known");
  auto watcher = Watcher::open(folder.path(), true).value();
  // More than the kernel queues (fs.inotify.max_queued_events).
  for (int i = 0; i < 20'000; ++i) ::close(::open((folder.path() / std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600));
  fs::create_directory(folder.path() / "known/new");
  bool overflow = false;
  for (int i = 0; i < 1000 && !overflow; ++i)
    for (const auto& event : watcher.digest()) overflow |= event.change == Change::overflow;
  EXPECT_TRUE(overflow);
  while (!watcher.digest().empty()) {
  }
  const std::string late = folder.path() / "known/new/late";
  ::close(::open(late.c_str(), O_CREAT | O_WRONLY, 0600));
  const auto after = watcher.digest();
  ASSERT_EQ(after.size(), 1u) << "a folder that was made while events were lost is watched as well";
  EXPECT_EQ(after[0].path, late);
}

}  // namespace
}  // namespace space::agent
