// Files of a real agent, as node sees them.
#include <fcntl.h>
#include <fstream>
#include <sys/mount.h>
#include <sys/stat.h>

#include "agent/test_support.h"
#include "agent/tree.h"

namespace space::agent {
namespace {

namespace fs = std::filesystem;

class Files : public AgentTest {
 protected:
  std::string target(const std::string& file, const std::string& more = {}) const {
    return "/v1/files/content?path=" + percent_encode(file) + more;
  }
  Result<http::Response> put(const std::string& file, std::string content, const std::string& more = {}) {
    return ask("PUT", target(file, more), std::move(content));
  }
  std::string get(const std::string& file, http::Headers headers = {}) {
    const auto response = ask("GET", target(file), {}, std::move(headers));
    return response && response->status < 300 ? response->body : "error: " + code_of(response);
  }
  json::object object(const Result<http::Response>& response) {
    EXPECT_TRUE(response);
    EXPECT_LT(response->status, 300) << response->body;
    return parse_json_object(response->body, 16 << 20).value_or(json::object{});
  }
  json::object list(const std::string& query) { return object(ask("GET", "/v1/files/list?path=" + percent_encode(path("")) + query)); }
  static std::vector<std::string> names(const json::object& listing, std::string_view field = "name") {
    std::vector<std::string> out;
    for (const auto& entry : listing.at("entries").as_array()) out.emplace_back(entry.as_object().at(field).as_string());
    return out;
  }
  static struct stat status(const std::string& file) {
    struct stat st = {};
    ::stat(file.c_str(), &st);
    return st;
  }
  std::size_t count_files(const fs::path& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
};

TEST_F(Files, ComeBackAsTheyWent) {
  std::string every;
  for (int i = 0; i < 256; ++i) every.push_back(static_cast<char>(i));
  std::string large;
  while (large.size() < (5u << 20)) large += every + "x";
  for (const std::string& content : {std::string(), every, std::string(256 << 10, 'p'), large}) {
    const auto put_answer = put(path("f"), content);
    ASSERT_EQ(code_of(put_answer), "");
    EXPECT_EQ(object(put_answer).at("size").to_number<std::size_t>(), content.size());
    EXPECT_EQ(get(path("f")), content);
  }
  EXPECT_EQ(status(path("f")).st_mode & 07777, 0644u);
}

TEST_F(Files, ChunkedUploadsWorkToo) {
  const auto upload = [](wire::AgentClient& client, std::string to) -> Task<http::Response> {
    http::Request request;
    request.method = "PUT";
    request.target = to;
    CO_TRY(auto stream, co_await client.http().open(std::move(request), http::BodyKind::chunked));
    const std::string piece(100'000, 'c');
    for (int i = 0; i < 10; ++i) CO_TRY_VOID(co_await stream->write(as_bytes(piece)));
    CO_TRY_VOID(co_await stream->finish_request());
    co_return co_await stream->head();
  };
  EXPECT_EQ(wait(upload(*client_, target(path("f"))))->status, 201);
  EXPECT_EQ(get(path("f")), std::string(1'000'000, 'c'));
}

TEST_F(Files, AreReadInRanges) {
  ASSERT_EQ(code_of(put(path("f"), "0123456789")), "");
  EXPECT_EQ(get(path("f"), {{"Range", "bytes=2-4"}}), "234");
  EXPECT_EQ(get(path("f"), {{"Range", "bytes=-3"}}), "789");
  const auto part = ask("GET", target(path("f")), {}, {{"Range", "bytes=8-100"}});
  EXPECT_EQ(part->status, 206);
  EXPECT_EQ(part->headers.get("Content-Range"), "bytes 8-9/10");
  const auto beyond = ask("GET", target(path("f")), {}, {{"Range", "bytes=10-"}});
  EXPECT_EQ(beyond->status, 416);
  EXPECT_EQ(beyond->headers.get("Content-Range"), "bytes */10");
  EXPECT_EQ(code_of(beyond), "range_not_satisfiable");
  const auto head = ask("HEAD", target(path("f")));
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->headers.get("Content-Length"), "10");
  EXPECT_EQ(get(path("f"), {{"Range", "bytes=2-4"}, {"If-Range", "\"another\""}}), "0123456789");
}

TEST_F(Files, OfProcHaveContentAlthoughTheySayTheyAreEmpty) { EXPECT_NE(get("/proc/self/status").find("space-agent"), std::string::npos); }

TEST_F(Files, OfSysEndWhereTheyEndAlthoughTheySayTheyAreAPageLong) {
  const std::string address = "/sys/class/net/lo/address", content = "00:00:00:00:00:00\n";
  ASSERT_GT(status(address).st_size, static_cast<off_t>(content.size()));
  EXPECT_EQ(get(address), content);
  EXPECT_EQ(get(address, {{"Range", "bytes=0-1"}}), content);
  const auto head = ask("HEAD", target(address));
  EXPECT_EQ(head->headers.get("Content-Length"), std::to_string(content.size()));
  std::ofstream(path("holes")).close();
  fs::resize_file(path("holes"), 300'000);  // no blocks either
  EXPECT_EQ(get(path("holes")), std::string(300'000, '\0'));
  EXPECT_EQ(get(path("holes"), {{"Range", "bytes=299990-"}}), std::string(10, '\0'));
}

TEST_F(Files, OnlyRegularOnesHaveContent) {
  ::mkfifo(path("fifo").c_str(), 0600);
  EXPECT_EQ(get("/dev/zero"), "error: not_a_file");
  EXPECT_EQ(get(path("fifo")), "error: not_a_file");
  EXPECT_EQ(get(path("")), "error: is_a_directory");
  EXPECT_EQ(get(path("none")), "error: no_such_file");
  EXPECT_EQ(code_of(put(path("fifo"), "x")), "not_a_file");
  EXPECT_EQ(code_of(put(path(""), "x")), "is_a_directory");
  EXPECT_EQ(code_of(put(path("no/folder/f"), "x")), "no_such_file");
  EXPECT_EQ(code_of(put(path("no/folder/f"), "x", "&parents=1")), "");
  EXPECT_EQ(get(path("no/folder/f")), "x");
  EXPECT_EQ(code_of(ask("GET", "/v1/files/content?path=")), "invalid_path");
  EXPECT_EQ(code_of(ask("GET", "/v1/files/content?path=/" + std::string(5000, 'a'))), "invalid_path");
}

TEST_F(Files, OverwritingKeepsModeOwnerLinksAndLeavesNothingBehind) {
  ASSERT_EQ(code_of(put(path("f"), "old", "&mode=0640&owner=daemon:sys")), "");
  const auto before = status(path("f"));
  EXPECT_EQ(before.st_mode & 07777, 0640u);
  EXPECT_EQ(before.st_uid, 1u);
  EXPECT_EQ(before.st_gid, 3u);
  fs::create_symlink("f", path("link"));
  fs::create_symlink(path("link"), path("link2"));
  EXPECT_EQ(code_of(put(path("link2"), "new")), "");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(get(path("f")), "new");
  EXPECT_EQ(status(path("f")).st_mode & 07777, 0640u);
  EXPECT_EQ(status(path("f")).st_uid, 1u);
  EXPECT_EQ(status(path("f")).st_gid, 3u);
  EXPECT_NE(status(path("f")).st_ino, before.st_ino) << "replaced in one step";

  fs::create_hard_link(path("f"), path("hard"));
  EXPECT_EQ(code_of(put(path("hard"), "both")), "");
  EXPECT_EQ(get(path("f")), "both") << "a hard link stays one";
  fs::create_symlink("made-by-link", path("dangling"));
  EXPECT_EQ(code_of(put(path("dangling"), "x")), "");
  EXPECT_EQ(get(path("made-by-link")), "x");
  fs::create_symlink("round", path("round"));
  EXPECT_EQ(code_of(put(path("round"), "x")), "too_many_links");
  EXPECT_EQ(count_files(folder_->path()), 8u) << "socket, f, link, link2, hard, dangling, made-by-link, round";
}

TEST_F(Files, ActWithTheRightsOfTheUser) {
  ASSERT_EQ(code_of(put(path("secret"), "s", "&mode=0600")), "");
  ASSERT_EQ(code_of(put(path("public"), "p")), "");
  const std::string user = "&user=daemon";
  EXPECT_EQ(code_of(ask("GET", target(path("secret"), user))), "access_denied");
  EXPECT_EQ(ask("GET", target(path("public"), user))->body, "p");
  EXPECT_EQ(code_of(put(path("public"), "x", user)), "access_denied");
  EXPECT_EQ(code_of(put(path("new"), "x", user)), "access_denied");
  EXPECT_EQ(code_of(ask("DELETE", "/v1/files?path=" + path("public") + user)), "access_denied");
  EXPECT_EQ(code_of(ask("POST", "/v1/files/mkdir", R"({"user":"daemon","path":")" + path("d") + "\"}")), "access_denied");
  EXPECT_EQ(code_of(ask("GET", target("/proc/1/environ", user))), "access_denied") << "no capability is left";
  EXPECT_EQ(code_of(ask("GET", target(path("public"), "&user=nobody-here"))), "unknown_user");
  // A folder of their own, and a file of somebody else that they may write.
  ASSERT_EQ(::chown((fs::create_directory(path("own")), path("own")).c_str(), 1, 1), 0);
  EXPECT_EQ(code_of(put(path("own/f"), "x", user)), "");
  EXPECT_EQ(status(path("own/f")).st_uid, 1u);
  EXPECT_EQ(code_of(put(path("own/f"), "x", user + "&owner=root")), "access_denied");
  std::ofstream(path("own/shared")) << "root's";
  fs::permissions(path("own/shared"), fs::perms(0666));
  EXPECT_EQ(code_of(put(path("own/shared"), "changed", user)), "");
  EXPECT_EQ(get(path("own/shared")), "changed");
  EXPECT_EQ(status(path("own/shared")).st_uid, 0u);
  EXPECT_EQ(get(path("secret")), "s") << "and root is root again";
}

TEST_F(Files, FullDiskIsSaidAndLeavesTheOldContent) {
  fs::create_directory(path("small"));
  ASSERT_EQ(::mount("tmpfs", path("small").c_str(), "tmpfs", 0, "size=1m"), 0);
  EXPECT_EQ(code_of(put(path("small/f"), "old")), "");
  const auto full = put(path("small/f"), std::string(3 << 20, 'x'));
  const std::string content = get(path("small/f"));
  const auto left = count_files(path("small"));
  const auto again = put(path("small/g"), std::string(500 << 10, 'y'));
  ::umount2(path("small").c_str(), MNT_DETACH);
  EXPECT_EQ(full->status, 507);
  EXPECT_EQ(code_of(full), "no_space");
  EXPECT_EQ(content, "old");
  EXPECT_EQ(left, 1u);
  EXPECT_EQ(code_of(again), "");
}

TEST_F(Files, AreListedInPagesAndInOrder) {
  for (const char* name : {"b/2", "b/1", "a", "c/d/e/f", "c/x"})
    ASSERT_EQ(code_of(put(path(std::string("tree/") + name), "x", "&parents=1")), "");
  fs::create_symlink("a", path("tree/link"));
  std::ofstream(path("tree/\xff\xfe")) << "bytes";
  const std::string root = "/v1/files/list?path=" + percent_encode(path("tree"));
  EXPECT_EQ(names(object(ask("GET", root))), (std::vector<std::string>{"a", "b", "c", "link", "\xef\xbf\xbd\xef\xbf\xbd"}));

  std::vector<std::string> all, paged;
  for (auto& one : names(object(ask("GET", root + "&depth=10")), "path")) all.push_back(one.substr(path("tree/").size()));
  EXPECT_EQ(all,
            (std::vector<std::string>{"a", "b", "b/1", "b/2", "c", "c/d", "c/d/e", "c/d/e/f", "c/x", "link", "\xef\xbf\xbd\xef\xbf\xbd"}));
  for (const char* limit : {"1", "2", "3", "7"}) {
    paged.clear();
    std::string after;
    for (int pages = 0; pages < 20; ++pages) {
      const auto page = object(ask("GET", root + "&depth=10&limit=" + limit + after));
      for (auto& one : names(page, "path")) paged.push_back(one.substr(path("tree/").size()));
      if (page.at("next").is_null()) break;
      after = "&after=" + std::string(page.at("next").as_string());
    }
    EXPECT_EQ(paged, all) << "pages of " << limit;
  }
  EXPECT_EQ(code_of(ask("GET", root + "&after=!!")), "invalid_cursor");
  EXPECT_EQ(code_of(ask("GET", root + "&depth=0")), "invalid_query");
  EXPECT_EQ(code_of(ask("GET", "/v1/files/list?path=" + path("tree/a"))), "not_a_directory");
}

TEST(Listings, GoOnAfterNamesThatVanish) {
  const auto folder = TempDir::make(fs::temp_directory_path(), "list-test-").value();
  std::vector<std::string> kept;
  for (int i = 0; i < 60; ++i) {
    const std::string name = fmt::format("{:02}", i);
    std::ofstream(folder.path() / name) << "x";
    if (i % 20 >= 15) kept.push_back(name);  // 15 go, 5 stay, and so on
  }
  const ReadEntry read = [&](int at, const char* name, std::string path) -> Result<Entry> {
    if (std::stoi(name) % 20 < 15) ::unlinkat(at, name, 0);
    return read_entry(at, name, std::move(path));
  };
  for (const std::size_t limit : {1u, 2u, 4u, 100u}) {
    for (int i = 0; i < 60; ++i) std::ofstream(folder.path() / fmt::format("{:02}", i)) << "x";
    std::vector<std::string> found;
    ListRequest request{folder.path().string(), 1, limit, {}};
    for (int pages = 0; pages < 60; ++pages) {
      const auto page = list_folder(request, read);
      ASSERT_TRUE(page) << describe(page.error());
      for (const Entry& entry : page->entries) found.push_back(fs::path(entry.path).filename());
      if (!page->next) break;
      EXPECT_EQ(page->entries.size(), limit) << "a page that is not the last is full";
      request.after = *page->next;
    }
    EXPECT_EQ(found, kept) << "pages of " << limit;
  }
}

TEST_F(Files, HaveEntriesThatSayWhatTheyAre) {
  ASSERT_EQ(code_of(put(path("f"), "12345", "&mode=0600&owner=daemon")), "");
  fs::create_symlink("f", path("link"));
  const auto file = object(ask("GET", "/v1/files/stat?path=" + path("f")));
  EXPECT_EQ(file.at("type"), "file");
  EXPECT_EQ(file.at("size"), 5);
  EXPECT_EQ(file.at("mode"), "0600");
  EXPECT_EQ(file.at("user"), "daemon");
  const auto link = object(ask("GET", "/v1/files/stat?path=" + path("link")));
  EXPECT_EQ(link.at("type"), "symlink");
  EXPECT_EQ(link.at("target"), "f");
  EXPECT_EQ(object(ask("GET", "/v1/files/stat?path=/")).at("name"), "/");
  std::ofstream(path("\xc3(")) << "x";
  const auto odd = object(ask("GET", "/v1/files/stat?path=" + percent_encode(path("\xc3("))));
  EXPECT_EQ(base64_decode(odd.at("name_base64").as_string()), "\xc3(");
  EXPECT_EQ(code_of(put(path("\xc3("), "through the API")), "");
  EXPECT_EQ(get(path("\xc3(")), "through the API");
}

TEST_F(Files, FoldersAreMadeMovedAndRemoved) {
  const auto post = [&](const std::string& what, const std::string& body) { return ask("POST", "/v1/files/" + what, body); };
  EXPECT_EQ(post("mkdir", R"({"path":")" + path("x/y/z") + R"(","mode":"0750"})")->status, 201);
  EXPECT_EQ(status(path("x/y/z")).st_mode & 07777, 0750u);
  EXPECT_EQ(post("mkdir", R"({"path":")" + path("x/y/z") + "\"}")->status, 200) << "it is there already";
  EXPECT_EQ(code_of(post("mkdir", R"({"path":")" + path("p/q") + R"(","parents":false})")), "no_such_file");
  ASSERT_EQ(code_of(put(path("x/f"), "f")), "");
  EXPECT_EQ(code_of(post("mkdir", R"({"path":")" + path("x/f") + "\"}")), "already_exists");

  ASSERT_EQ(code_of(put(path("x/g"), "g")), "");
  EXPECT_EQ(code_of(post("move", R"({"from":")" + path("x/f") + R"(","to":")" + path("x/g") + "\"}")), "already_exists");
  EXPECT_EQ(get(path("x/g")), "g");
  EXPECT_EQ(code_of(post("move", R"({"from":")" + path("x/f") + R"(","to":")" + path("x/g") + R"(","overwrite":true})")), "");
  EXPECT_EQ(get(path("x/g")), "f");
  EXPECT_EQ(code_of(post("move", R"({"from":")" + path("none") + R"(","to":")" + path("h") + "\"}")), "no_such_file");
  EXPECT_EQ(code_of(post("move", R"({"from":")" + path("x/g") + R"(","to":"/dev/shm/space-agent-test"})")), "cross_device");

  const auto remove = [&](const std::string& what, const char* more = "") {
    return code_of(ask("DELETE", "/v1/files?path=" + percent_encode(what) + more));
  };
  EXPECT_EQ(remove(path("x")), "not_empty");
  fs::create_directory_symlink("/usr", path("x/usr"));
  EXPECT_EQ(remove(path("x"), "&recursive=1"), "");
  EXPECT_FALSE(fs::exists(path("x")));
  EXPECT_TRUE(fs::exists("/usr/bin"));
  EXPECT_EQ(remove(path("x")), "no_such_file");
  EXPECT_EQ(remove("/", "&recursive=1"), "invalid_path");
  EXPECT_EQ(remove(path("."), "&recursive=1"), "invalid_path");
}

TEST_F(Files, ManyEntriesAreRemoved) {
  fs::create_directory(path("many"));
  for (int i = 0; i < 9000; ++i) ::close(::open(path("many/" + std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_EQ(code_of(ask("DELETE", "/v1/files?path=" + path("many") + "&recursive=1")), "");
  EXPECT_FALSE(fs::exists(path("many")));
}

}  // namespace
}  // namespace space::agent
