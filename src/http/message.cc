#include "http/message.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <fmt/format.h>

#include "base/encoding.h"
#include "base/json.h"

namespace space::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

struct StatusRow {
  int status;
  std::string_view reason;
};
// RFC 9110, section 15; 499 is nginx's, for a client that went away.
constexpr StatusRow kReasons[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {425, "Too Early"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

// Codes for which HTTP has a status of its own, beside what the kind of the error says.
struct CodeRow {
  std::string_view code;
  int status;
};
constexpr CodeRow kCodes[] = {
    {"request_timeout", 408},        {"method_not_allowed", 405}, {"target_too_long", 414},       {"headers_too_large", 431},
    {"expectation_failed", 417},     {"length_required", 411},    {"range_not_satisfiable", 416}, {"precondition_failed", 412},
    {"unsupported_media_type", 415}, {"not_acceptable", 406},     {"version_not_supported", 505},
};

// JSON is UTF-8; a message may quote what somebody else sent.
std::string printable(const std::string& text) {
  if (is_utf8(text)) return text;
  std::string clean = text;
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return clean;
}

bool is_code(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

std::string text_of(const json::object& object, std::string_view name, std::size_t most) {
  const json::value* value = object.if_contains(name);
  if (!value || !value->is_string() || value->get_string().size() > most) return {};
  return std::string(value->get_string());
}

}  // namespace

bool equal_no_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view Headers::get(std::string_view name) const {
  for (const auto& [key, value] : fields_)
    if (equal_no_case(key, name)) return value;
  return {};
}

bool Headers::has(std::string_view name) const { return count(name) > 0; }

std::size_t Headers::count(std::string_view name) const {
  return static_cast<std::size_t>(
      std::count_if(fields_.begin(), fields_.end(), [&](const auto& field) { return equal_no_case(field.first, name); }));
}

void Headers::set(std::string_view name, std::string value) {
  remove(name);
  add(name, std::move(value));
}

void Headers::add(std::string_view name, std::string value) { fields_.emplace_back(std::string(name), std::move(value)); }

void Headers::remove(std::string_view name) {
  std::erase_if(fields_, [&](const auto& field) { return equal_no_case(field.first, name); });
}

void Headers::remove_starting_with(std::string_view start) {
  std::erase_if(fields_, [&](const auto& field) { return equal_no_case(std::string_view(field.first).substr(0, start.size()), start); });
}

std::string_view reason_phrase(int status) {
  for (const auto& row : kReasons)
    if (row.status == status) return row.reason;
  return status >= 500 ? "Server Error" : status >= 400 ? "Client Error" : "OK";
}

int status_of(const Error& error) {
  for (const auto& row : kCodes)
    if (row.code == error.code) return row.status;
  return http_status(error.kind);
}

Response problem(const Error& error) {
  const int status = status_of(error);
  json::object body{{"type", "urn:space:error:" + error.code},
                    {"title", reason_phrase(status)},
                    {"status", status},
                    {"code", error.code},
                    {"detail", printable(error.message)}};
  if (!error.next.empty()) body["next"] = printable(error.next);
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/problem+json");
  response.body = json::serialize(body);
  return response;
}

Error error_from_response(int status, std::string_view body) {
  Error error;
  error.kind = status == 408 ? ErrorKind::deadline_exceeded : error_kind_from_http(status);
  if (const auto object = parse_json_object(body, 64 << 10)) {
    error.code = text_of(*object, "code", 64);
    error.message = text_of(*object, "detail", 8 << 10);
    error.next = text_of(*object, "next", 8 << 10);
  }
  if (!is_code(error.code)) error.code = fmt::format("http_{}", status);
  if (error.message.empty()) error.message = fmt::format("the other end answered {} {}", status, reason_phrase(status));
  return error;
}

Response json_response(int status, std::string body) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = std::move(body);
  return response;
}

}  // namespace space::http
