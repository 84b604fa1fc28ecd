#include "http/message.h"

#include <gtest/gtest.h>

#include "http/chunk.h"
#include "http/head.h"

namespace space::http {
namespace {

TEST(Headers, ThoseThatBeginAlikeGoTogether) {
  Headers headers{{"Space-Tenant", "1"}, {"sPaCe-x", "2"}, {"Space", "3"}, {"Spaced-out", "4"}};
  headers.remove_starting_with("Space-");
  EXPECT_EQ(headers.fields(), (std::vector<std::pair<std::string, std::string>>{{"Space", "3"}, {"Spaced-out", "4"}}));
}

TEST(Headers, AreComparedWithoutCaseAndKeepTheirOrder) {
  Headers headers{{"A", "1"}, {"b", "2"}, {"a", "3"}};
  EXPECT_EQ(headers.get("a"), "1");
  EXPECT_EQ(headers.count("A"), 2U);
  headers.set("a", "4");
  EXPECT_EQ(headers.count("a"), 1U);
  EXPECT_EQ(headers.fields().back().second, "4");
  headers.remove("B");
  EXPECT_FALSE(headers.has("b"));
}

TEST(ParseTarget, SplitsBeforeItDecodes) {
  const Target target = parse_target("/v1/a%2Fb/c%20d?path=%2Ftmp%2Fx+y&flag&e=%41").value();
  EXPECT_EQ(target.segments, (std::vector<std::string>{"v1", "a/b", "c d"}));
  EXPECT_EQ(target.query_value("path"), "/tmp/x y");
  EXPECT_EQ(target.query_value("flag"), "");
  EXPECT_EQ(target.query_value("e"), "A");
  EXPECT_EQ(target.query_value("none"), std::nullopt);
  EXPECT_TRUE(parse_target("/").value().segments.empty());
  EXPECT_EQ(parse_target("/?a=1").value().query_value("a"), "1");
  EXPECT_EQ(parse_target("/x?p=a%0Ab").value().query_value("p"), "a\nb") << "names of files may hold line breaks";
}

TEST(ParseTarget, RefusesWhatCouldBeReadTwoWays) {
  for (const char* bad : {"",     "x",     "*",  "http://h/x", "//",   "/a//b", "/a/",  "/.",     "/a/..",     "/a/%2e%2e/b", "/a/%2E",
                          "/%00", "/a%0a", "/%", "/%4",        "/%zz", "/a b",  "/a#b", "/a\x7f", "/\xc3\xa4", "/?a=%00",     "/?a=%g0"})
    EXPECT_EQ(parse_target(bad).error().code, "bad_target") << bad;
  EXPECT_EQ(parse_target("/" + std::string(9000, 'a')).error().code, "target_too_long");
  EXPECT_FALSE(parse_target("/" + std::string(200, '/')));
  std::string many = "/?";
  for (int i = 0; i < 500; ++i) many += "a=b&";
  EXPECT_FALSE(parse_target(many));
}

TEST(Problem, CarriesCodeDetailAndNextThereAndBack) {
  const Response response = problem({ErrorKind::conflict, "outside_window", "the window is gone \xff", "attach again"});
  EXPECT_EQ(response.status, 409);
  EXPECT_EQ(response.headers.get("content-type"), "application/problem+json");
  const Error error = error_from_response(response.status, response.body);
  EXPECT_EQ(error.kind, ErrorKind::conflict);
  EXPECT_EQ(error.code, "outside_window");
  EXPECT_EQ(error.message, "the window is gone ?");
  EXPECT_EQ(error.next, "attach again");
  EXPECT_EQ(problem({ErrorKind::deadline_exceeded, "request_timeout", "", ""}).status, 408);
  EXPECT_EQ(problem({ErrorKind::invalid_argument, "headers_too_large", "", ""}).status, 431);
}

TEST(ErrorFromResponse, SurvivesAnythingThatIsNotAProblem) {
  EXPECT_EQ(error_from_response(503, "<html>").code, "http_503");
  EXPECT_EQ(error_from_response(503, "<html>").kind, ErrorKind::unavailable);
  EXPECT_EQ(error_from_response(418, R"({"code":"NOT A CODE\n"})").code, "http_418");
  EXPECT_EQ(error_from_response(404, R"({"code":7})").code, "http_404");
  EXPECT_EQ(error_from_response(500, std::string(1000, '[')).code, "http_500");
}

std::string scan(std::string_view text, std::size_t limit = 1000) {
  HeadScanner scanner(limit);
  for (std::size_t n = 0; n <= text.size(); ++n) {  // byte by byte: the worst way to arrive
    const auto result = scanner.scan(text.substr(0, n));
    if (!result) return result.error().code;
    if (*result) return std::to_string(**result);
  }
  return "more";
}

TEST(HeadScanner, FindsTheEndAndRefusesOtherLineEnds) {
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\r\n\r\nrest"), "24");
  EXPECT_EQ(scan("GET / HTTP/1.1\r\n\r\n"), "18");
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\r\n"), "more");
  EXPECT_EQ(scan("GET / HTTP/1.1\n\n"), "bad_message");
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n"), "bad_message");
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n"), "bad_message");
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n"), "bad_message");
  EXPECT_EQ(scan("\r\nGET / HTTP/1.1\r\n\r\n"), "bad_message");
  EXPECT_EQ(scan(std::string_view("GET /\0 HTTP/1.1\r\n\r\n", 19)), "bad_message");
  EXPECT_EQ(scan("GET /" + std::string(2000, 'a')), "target_too_long");
  EXPECT_EQ(scan("GET / HTTP/1.1\r\nA: " + std::string(2000, 'a')), "headers_too_large");
}

std::string request_code(const std::string& fields, std::string line = "POST / HTTP/1.1") {
  const std::string text = line + "\r\n" + fields + "\r\n";
  HeadScanner scanner(100'000);
  if (const auto scanned = scanner.scan(text); !scanned) return scanned.error().code;
  const auto head = parse_request_head(text, 20);
  return head ? "ok" : head.error().code;
}

TEST(RequestHead, EndsOfMessagesAreNeverAmbiguous) {
  EXPECT_EQ(request_code("Host: a\r\nContent-Length: 5\r\n"), "ok");
  EXPECT_EQ(request_code("Host: a\r\nTransfer-Encoding: Chunked\r\n"), "ok");
  for (const char* bad : {"Content-Length: 5\r\nContent-Length: 5\r\n",
                          "Content-Length: 5, 5\r\n",
                          "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                          "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                          "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                          "Transfer-Encoding: gzip, chunked\r\n",
                          "Transfer-Encoding: chunked, identity\r\n",
                          "Transfer-Encoding: xchunked\r\n",
                          "Transfer-Encoding:\r\n",
                          "Content-Length: +5\r\n",
                          "Content-Length: -1\r\n",
                          "Content-Length: 0x5\r\n",
                          "Content-Length: \r\n",
                          "Content-Length: 99999999999999999999\r\n",
                          "Content-Length : 5\r\n",
                          " Content-Length: 5\r\n",
                          "Content Length: 5\r\n",
                          ": x\r\n",
                          "noColon\r\n",
                          "A: \x01\r\n",
                          "Host: b\r\n"})
    EXPECT_EQ(request_code(std::string("Host: a\r\n") + bad), "bad_message") << bad;
  EXPECT_EQ(request_code(""), "bad_message") << "no Host";
  EXPECT_EQ(request_code("", "GET / HTTP/1.0"), "ok");
  EXPECT_EQ(request_code("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0"), "bad_message");
  EXPECT_EQ(request_code("Host: a\r\n", "GET / HTTP/2.0"), "version_not_supported");
  for (const char* line :
       {"GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET /a b HTTP/1.1", "GET /", "G@T / HTTP/1.1", " GET / HTTP/1.1", "GET\t/ HTTP/1.1"})
    EXPECT_NE(request_code("Host: a\r\n", line), "ok") << line;
  EXPECT_EQ(request_code("Host: a\r\nExpect: something\r\n"), "expectation_failed");
  std::string many = "Host: a\r\n";
  for (int i = 0; i < 30; ++i) many += "A: b\r\n";
  EXPECT_EQ(request_code(many), "headers_too_large");
}

TEST(ResponseHead, KnowsWhereTheBodyEnds) {
  const auto framing = [](const std::string& text, const char* method = "GET") {
    return parse_response_head(text, 20, method).value().framing;
  };
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), Framing::sized);
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD"), Framing::none);
  EXPECT_EQ(framing("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"), Framing::chunked);
  EXPECT_EQ(framing("HTTP/1.1 204 No Content\r\n\r\n"), Framing::none);
  EXPECT_EQ(framing("HTTP/1.1 200 OK\r\n\r\n"), Framing::until_close);
  EXPECT_TRUE(parse_response_head("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 20, "GET").value().keep_alive);
  EXPECT_FALSE(parse_response_head("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 20, "GET").value().keep_alive);
  EXPECT_FALSE(parse_response_head("HTTP/1.1 999 Odd\r\n\r\n", 20, "GET"));
  EXPECT_FALSE(parse_response_head("ICY 200 OK\r\n\r\n", 20, "GET"));
}

// Decodes with `step` bytes at a time; "bad" and "more" stand for themselves.
std::string dechunk(std::string_view text, std::size_t step) {
  ChunkDecoder chunks;
  std::string data;
  while (!text.empty() && !chunks.done() && !chunks.bad()) {
    std::string_view piece = text.substr(0, step);
    if (const auto left = chunks.data_left(); left > 0) {
      piece = piece.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(left, piece.size())));
      data += piece;
      chunks.took(piece.size());
    } else {
      piece = piece.substr(0, chunks.consume(piece));
    }
    text.remove_prefix(piece.size());
  }
  return chunks.bad() ? "bad" : chunks.done() ? data + "|" + std::string(text) : "more";
}

TEST(Chunks, AreReadStrictlyInPiecesOfAnySize) {
  for (std::size_t step : {1U, 2U, 3U, 100U}) {
    EXPECT_EQ(dechunk("3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nnext", step), "abc0123456789|next");
    EXPECT_EQ(dechunk("3;a=b;c\r\nabc\r\n0;x\r\nTrailer: x\r\nB: c\r\n\r\n", step), "abc|");
    EXPECT_EQ(dechunk("3\r\nab", step), "more");
    for (const char* bad : {"\r\n", "x\r\n", "-1\r\n", " 3\r\nabc\r\n", "3 \r\nabc\r\n", "0x3\r\nabc\r\n", "3\nabc\r\n", "3\r\nabcd\r\n",
                            "3\r\nabc\n0\r\n\r\n", "3\rabc", "ffffffffffffffff\r\n", "0\r\n\n", "0\r\nA: b\n\r\n", "0\r\n folded\r\n\r\n",
                            "3;\x01\r\n", "3\r\nabcX\n"})
      EXPECT_EQ(dechunk(bad, step), "bad") << bad;
  }
  EXPECT_EQ(dechunk("3;" + std::string(100'000, 'x'), 1000), "bad");
  EXPECT_EQ(dechunk("0\r\n" + std::string(100'000, 'x'), 1000), "bad");
}

}  // namespace
}  // namespace space::http
