// E2B's protocol at a real agent, in the bytes that its clients send (golden examples in docs/e2b.md).
#include <fstream>
#include <sys/stat.h>
#include <zlib.h>

#include "agent/envd_connect.h"
#include "agent/envd_multipart.h"
#include "agent/figures.h"
#include "agent/test_support.h"

namespace space::agent {
namespace {

class EnvdTest : public AgentTest {
 protected:
  struct Stream {
    int status = 0;
    std::vector<json::object> messages;
    json::object end;
  };
  static http::Headers stream_type(std::string timeout = {}) {
    http::Headers headers{{"Content-Type", "application/connect+json"}, {"Connect-Protocol-Version", "1"}};
    if (!timeout.empty()) headers.set("Connect-Timeout-Ms", timeout);
    return headers;
  }
  Stream stream(const std::string& method, const std::string& body, http::Headers headers = stream_type()) {
    const auto response = ask("POST", method, connect::envelope(body), std::move(headers));
    EXPECT_TRUE(response);
    Stream out;
    out.status = response->status;
    EXPECT_EQ(response->headers.get("Content-Type"), "application/connect+json");
    connect::EnvelopeReader reader;
    const auto messages = reader.feed(response->body);
    EXPECT_TRUE(messages);
    for (const auto& message : *messages) {
      auto object = parse_json_object(message.payload, 1 << 20).value_or(json::object{});
      if (message.last)
        out.end = std::move(object);
      else
        out.messages.push_back(std::move(object));
    }
    EXPECT_TRUE(messages->back().last);
    return out;
  }
  Result<http::Response> unary(const std::string& method, std::string body,
                               http::Headers headers = {{"Content-Type", "application/json"}}) {
    return ask("POST", method, std::move(body), std::move(headers));
  }
  static std::string start_body(const std::string& line) {
    const json::object body{{"process", json::object{{"cmd", "/bin/sh"}, {"args", json::array{"-c", line}}}}, {"stdin", false}};
    return json::serialize(body);
  }
  static const json::value& event(const Stream& stream, std::size_t at, std::string_view name) {
    return stream.messages.at(at).at("event").as_object().at(name);
  }
  static std::string output(const Stream& stream, std::string_view which) {
    std::string all;
    for (const auto& message : stream.messages)
      if (const auto* data = message.at("event").as_object().if_contains("data"))
        if (const auto* text = data->as_object().if_contains(which)) all += base64_decode(text->as_string()).value();
    return all;
  }
  static std::string text_file(const std::string& name) {
    std::ifstream in(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(EnvdTest, StartSendsStartThenOutputThenEnd) {
  const Stream got = stream("/process.Process/Start", start_body("echo hi; echo no >&2; exit 3"));
  EXPECT_EQ(got.status, 200);
  EXPECT_GT(event(got, 0, "start").at("pid").to_number<int>(), 1);
  EXPECT_EQ(output(got, "stdout"), "hi\n");
  EXPECT_EQ(output(got, "stderr"), "no\n");
  EXPECT_EQ(json::serialize(event(got, got.messages.size() - 1, "end")),
            R"({"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"})");
  EXPECT_TRUE(got.end.empty());
}

TEST_F(EnvdTest, ASignalEndsWithMinusOneAndItsName) {
  const Stream got = stream("/process.Process/Start", start_body("kill -TERM $$"));
  EXPECT_EQ(json::serialize(event(got, got.messages.size() - 1, "end")),
            R"({"exitCode":-1,"exited":false,"status":"signal: terminated","error":"signal: terminated"})");
}

TEST_F(EnvdTest, TheTimeoutKillsTheProcess) {
  const Stream got = stream("/process.Process/Start", start_body("sleep 30"), stream_type("200"));
  EXPECT_EQ(got.end.at("error").at("code"), "deadline_exceeded");
  EXPECT_EQ(json::serialize(parse_json_object(unary("/process.Process/List", "{}")->body).value()), R"({"processes":[]})");
}

TEST_F(EnvdTest, ErrorsOfStreamsComeInTheEndFrame) {
  const Stream got = stream("/process.Process/Start", R"({"process":{"cmd":"/bin/true","cwd":"/not/there"}})");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.end.at("error").at("code"), "invalid_argument");
  EXPECT_EQ(got.end.at("error").at("message"), "cwd '/not/there' does not exist");
  EXPECT_EQ(stream("/process.Process/Connect", R"({"process":{"pid":999999}})").end.at("error").at("message"),
            "process with pid 999999 not found");
}

TEST_F(EnvdTest, UnaryErrorsHaveTheirStatus) {
  const auto unknown = unary("/process.Process/SendSignal", R"({"process":{"pid":999999},"signal":"SIGNAL_SIGKILL"})");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_EQ(unknown->body, R"({"code":"not_found","message":"process with pid 999999 not found"})");
  EXPECT_EQ(unary("/filesystem.Filesystem/Stat", "{", {{"Content-Type", "application/json"}})->status, 400);
  EXPECT_EQ(unary("/filesystem.Filesystem/Stat", "{}", {{"Content-Type", "text/plain"}})->status, 415);
  EXPECT_EQ(unary("/filesystem.Filesystem/Stat", "{}", {{"Content-Type", "application/proto"}})->status, 400);  // no message
  // "nobodyhere:" in base64
  const auto user = unary("/filesystem.Filesystem/Stat", R"({"path":"x"})",
                          {{"Content-Type", "application/json"}, {"Authorization", "Basic bm9ib2R5aGVyZTo="}});
  EXPECT_EQ(user->status, 401);
  EXPECT_EQ(user->body, R"({"code":"unauthenticated","message":"invalid username: 'nobodyhere'"})");
}

TEST_F(EnvdTest, AStreamTakesOneMessageAndNothingElse) {
  const std::string body = start_body("true");
  for (const std::string& wrong : {std::string(), std::string("\x01\0\0\0\2{}", 7), connect::envelope(body) + connect::envelope(body),
                                   std::string("\0\0\0\0\xff{}", 7)}) {
    const auto response = ask("POST", "/process.Process/Start", wrong, stream_type());
    ASSERT_TRUE(response);
    EXPECT_NE(response->body.find("invalid_argument"), std::string::npos) << wrong.size();
  }
}

TEST_F(EnvdTest, FoldersAndEntries) {
  const auto make = json::serialize(json::object{{"path", path("a/b")}});
  EXPECT_EQ(unary("/filesystem.Filesystem/MakeDir", make)->status, 200);
  EXPECT_EQ(unary("/filesystem.Filesystem/MakeDir", make)->body,
            fmt::format(R"({{"code":"already_exists","message":"directory already exists: {}"}})", path("a/b")));
  ASSERT_EQ(::symlink("b", path("a/link").c_str()), 0);
  const auto entry = parse_json_object(unary("/filesystem.Filesystem/Stat", json::serialize(json::object{{"path", path("a/link")}}))->body)
                         .value()
                         .at("entry")
                         .as_object();
  EXPECT_EQ(entry.at("type"), "FILE_TYPE_DIRECTORY");
  EXPECT_EQ(entry.at("permissions"), "Lrwxrwxrwx");
  EXPECT_EQ(entry.at("symlinkTarget"), json::value(path("a/b")));
  EXPECT_TRUE(entry.at("size").is_string());
  const auto list =
      parse_json_object(unary("/filesystem.Filesystem/ListDir", json::serialize(json::object{{"path", path("")}, {"depth", 2}}))->body)
          .value();
  std::vector<std::string> names;
  for (const auto& one : list.at("entries").as_array()) names.emplace_back(one.at("name").as_string());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "link", "agent.sock"}));
  EXPECT_EQ(unary("/filesystem.Filesystem/Remove", json::serialize(json::object{{"path", path("nothing")}}))->status, 200);
}

TEST_F(EnvdTest, UploadsInEveryForm) {
  const std::string multipart =
      "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + path("x/one") +
      "\"\r\nContent-Type: application/octet-stream\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" +
      path("two") + "\"\r\n\r\n\r\n--b--\r\n";
  const http::Headers form{{"Content-Type", "multipart/form-data; boundary=b"}, {"X-Metadata-Key", "value"}};
  const auto both = ask("POST", "/files", multipart, form);
  ASSERT_EQ(both->status, 200) << both->body;
  EXPECT_EQ(text_file(path("x/one")), "1");
  EXPECT_EQ(text_file(path("two")), "");
  EXPECT_NE(both->body.find(R"("metadata":{"key":"value"})"), std::string::npos) << both->body;

  std::string packed(100, '\0');
  z_stream deflate{};
  ASSERT_EQ(::deflateInit2(&deflate, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string plain = "hello";
  deflate.next_in = reinterpret_cast<Bytef*>(plain.data());
  deflate.avail_in = static_cast<uInt>(plain.size());
  deflate.next_out = reinterpret_cast<Bytef*>(packed.data());
  deflate.avail_out = static_cast<uInt>(packed.size());
  ASSERT_EQ(::deflate(&deflate, Z_FINISH), Z_STREAM_END);
  packed.resize(deflate.total_out);
  ::deflateEnd(&deflate);
  const std::string target = "/files?path=" + percent_encode(path("gz"));
  const http::Headers gzip{{"Content-Type", "application/octet-stream"}, {"Content-Encoding", "gzip"}};
  EXPECT_EQ(ask("POST", target, packed, gzip)->status, 200);
  EXPECT_EQ(text_file(path("gz")), "hello");
  EXPECT_EQ(ask("POST", target, packed.substr(0, packed.size() - 9), gzip)->status, 400);
  EXPECT_EQ(ask("POST", target, "nonsense", gzip)->status, 400);
}

TEST_F(EnvdTest, DownloadsAndTheirErrors) {
  std::ofstream(path("f")) << "0123456789";
  const std::string target = "/files?path=" + percent_encode(path("f"));
  EXPECT_EQ(ask("GET", target)->body, "0123456789");
  const auto part = ask("GET", target, {}, {{"Range", "bytes=2-4"}});
  EXPECT_EQ(part->status, 206);
  EXPECT_EQ(part->body, "234");
  const auto missing = ask("GET", "/files?path=/not/there");
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(missing->body, R"({"code":404,"message":"path '/not/there' does not exist"})");
  EXPECT_EQ(ask("GET", "/files?path=/tmp")->status, 400);
  EXPECT_EQ(ask("GET", "/files?path=x&username=nobodyhere")->status, 401);
  EXPECT_EQ(ask("POST", "/files?path=/tmp/", "x", {{"Content-Type", "application/octet-stream"}})->status, 400);
  EXPECT_EQ(ask("POST", "/files?path=x", "x", {{"Content-Type", "text/plain"}})->status, 400);
  EXPECT_EQ(ask("GET", "/health")->status, 204);
}

TEST_F(EnvdTest, FiguresAreThoseOfNow) {
  const auto ask_figures = [&] { return parse_json_object(ask("GET", "/metrics")->body).value(); };
  const auto first = ask_figures();
  for (const char* name : {"cpu_count", "mem_total", "mem_used", "disk_total", "disk_used"})
    EXPECT_GT(first.at(name).to_number<std::int64_t>(), 0) << name;
  EXPECT_LE(first.at("disk_used").to_number<std::int64_t>(), first.at("disk_total").to_number<std::int64_t>());
  EXPECT_TRUE(first.at("cpu_used_pct").is_number()) << "of the first question too";
  const auto begun = std::chrono::steady_clock::now();
  ask_figures();
  EXPECT_GT(seconds_since(begun), 0.4) << "too soon after the one before: a moment is measured";
}

TEST(Figures, OfWhatCannotBeReadAreNull) {
  for (const auto& [name, value] : figures({})) EXPECT_TRUE(value.is_null()) << name;
  Readings readings;
  readings.disk.emplace();
  readings.memory = "MemTotal: 2048 kB\n";
  const auto some = figures(readings);
  EXPECT_TRUE(some.at("disk_total").is_null() && some.at("disk_used").is_null()) << "a disk of 0 bytes is none";
  EXPECT_EQ(some.at("mem_total").to_number<int>(), 2 << 20);
  EXPECT_TRUE(some.at("mem_used").is_null());
}

TEST(Figures, TheCpuShareIsThatBetweenTwoReadings) {
  EXPECT_FALSE(read_cpu_times(""));
  EXPECT_FALSE(read_cpu_times("cpu0 1 2 3 4\n"));
  Readings readings;
  readings.before = read_cpu_times("cpu  1000 0 0 9000 0 0 0 0 5 5\ncpu0 1 1 1 1\n");
  readings.now = read_cpu_times("cpu  1050 0 20 9020 5 3 2 0 9 9\n");
  EXPECT_DOUBLE_EQ(figures(readings).at("cpu_used_pct").to_number<double>(), 75.0);
  readings.now = readings.before;
  EXPECT_TRUE(figures(readings).at("cpu_used_pct").is_null()) << "no time has passed";
  const std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  EXPECT_FALSE(is_fit(std::nullopt, now));
  EXPECT_FALSE(is_fit(CpuMark{{}, now - std::chrono::milliseconds(400)}, now));
  EXPECT_TRUE(is_fit(CpuMark{{}, now - std::chrono::seconds(5)}, now));
  EXPECT_FALSE(is_fit(CpuMark{{}, now - std::chrono::seconds(11)}, now));
}

TEST_F(EnvdTest, PolledWatchersKeepTheirEvents) {
  const auto made =
      parse_json_object(
          unary("/filesystem.Filesystem/CreateWatcher", json::serialize(json::object{{"path", path("")}, {"recursive", true}}))->body)
          .value();
  const std::string id(made.at("watcherId").as_string());
  const auto ask_events = json::serialize(json::object{{"watcherId", id}});
  ask("POST", "/files?path=" + percent_encode(path("new")), "x", {{"Content-Type", "application/octet-stream"}});
  std::string all;
  for (int i = 0; i < 100 && all.find("EVENT_TYPE_WRITE") == std::string::npos; ++i) {
    all += unary("/filesystem.Filesystem/GetWatcherEvents", ask_events)->body;
    ::usleep(20'000);
  }
  EXPECT_NE(all.find(R"({"name":"new","type":"EVENT_TYPE_CREATE"})"), std::string::npos) << all;
  EXPECT_NE(all.find(R"({"name":"new","type":"EVENT_TYPE_WRITE"})"), std::string::npos) << all;
  EXPECT_EQ(unary("/filesystem.Filesystem/RemoveWatcher", ask_events)->status, 200);
  EXPECT_EQ(unary("/filesystem.Filesystem/GetWatcherEvents", ask_events)->status, 404);
}

TEST(Multipart, RefusesWhatIsNotWellFormed) {
  EXPECT_FALSE(multipart_boundary("text/plain; boundary=b"));
  EXPECT_FALSE(multipart_boundary("multipart/form-data"));
  EXPECT_EQ(multipart_boundary("multipart/form-data; charset=x; boundary=\"a b\""), "a b");
  const auto read = [](std::string_view text) {
    MultipartReader reader("b");
    return reader.feed(text).has_value();
  };
  EXPECT_TRUE(read("--b\r\n\r\nbody without a head\r\n--b--"));
  EXPECT_FALSE(read("--bx\r\n"));
  EXPECT_FALSE(read("--b\r\nno field\r\n\r\n"));
  EXPECT_FALSE(read("--b\r\nA: " + std::string(20 << 10, 'x')));
}

}  // namespace
}  // namespace space::agent
