#include "agent/envd_multipart.h"

#include <algorithm>

#include "http/message.h"

namespace space::agent {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of one parameter in `; name="value"; other=value`. In quotes a backslash keeps the quote or backslash behind it.
std::optional<std::string> parameter(std::string_view text, std::string_view wanted) {
  while (!text.empty()) {
    const std::size_t semicolon = text.find(';');
    if (semicolon == std::string_view::npos) return std::nullopt;
    text = trimmed(text.substr(semicolon + 1));
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view name = trimmed(text.substr(0, equals));
    text = trimmed(text.substr(equals + 1));
    std::string value;
    if (text.starts_with('"')) {
      std::size_t at = 1;
      for (; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\')) ++at;
        value += text[at];
      }
      if (at >= text.size()) return std::nullopt;  // no closing quote
      text.remove_prefix(at + 1);
    } else {
      const std::size_t end = std::min(text.find(';'), text.size());
      value = trimmed(text.substr(0, end));
      text.remove_prefix(end);
    }
    if (http::equal_no_case(name, wanted)) return value;
  }
  return std::nullopt;
}

}  // namespace

MultipartReader::MultipartReader(std::string_view boundary) : delimiter_("\r\n--"), pending_("\r\n") { delimiter_ += boundary; }

tl::unexpected<Error> MultipartReader::refuse(std::string why) {
  state_ = State::failed;
  return fail(ErrorKind::invalid_argument, "invalid_argument", std::move(why));
}

Result<std::vector<PartEvent>> MultipartReader::feed(std::string_view bytes) {
  if (state_ == State::failed) return refuse("the upload was malformed before");
  pending_ += bytes;
  std::vector<PartEvent> out;
  for (;;) {
    TRY(const bool went_on, step(out));
    if (!went_on) return out;
  }
}

Result<bool> MultipartReader::step(std::vector<PartEvent>& out) {
  switch (state_) {
    case State::preamble:
    case State::body: {
      const bool body = state_ == State::body;
      const std::size_t at = pending_.find(delimiter_);
      // Without it, all but what may be its beginning has arrived.
      const std::size_t ready = at != std::string::npos ? at : pending_.size() - std::min(pending_.size(), delimiter_.size() - 1);
      if (body && ready > 0) out.push_back({PartEvent::What::data, {}, {}, pending_.substr(0, ready)});
      pending_.erase(0, ready);
      if (at == std::string::npos) return false;
      pending_.erase(0, delimiter_.size());
      if (body) out.push_back({PartEvent::What::end, {}, {}, {}});
      state_ = State::after_boundary;
      return true;
    }
    case State::after_boundary: {
      const std::size_t text = pending_.find_first_not_of(" \t");
      if (text == std::string::npos ? pending_.size() > kMostHead : text > kMostHead)
        return refuse("a boundary is followed by too much space");
      if (text == std::string::npos || pending_.size() < text + 2) return false;
      const std::string_view next = std::string_view(pending_).substr(text, 2);
      if (next == "--" && text == 0) {
        state_ = State::done;
      } else if (next == "\r\n") {
        pending_.erase(0, text);  // the line's end stays: an empty head begins with it
        state_ = State::head;
      } else {
        return refuse("a boundary of the upload is followed by something else than a part");
      }
      return true;
    }
    case State::head:
      return read_head(out);
    case State::done:
      pending_.clear();  // an epilogue means nothing
      return false;
    case State::failed:
      break;
  }
  return refuse("the upload was malformed before");
}

Result<bool> MultipartReader::read_head(std::vector<PartEvent>& out) {
  const std::size_t end = pending_.find("\r\n\r\n");
  if (end == std::string::npos ? pending_.size() > kMostHead : end > kMostHead) return refuse("the head of a part is too long");
  if (end == std::string::npos) return false;
  PartEvent begin{PartEvent::What::begin, {}, {}, {}};
  for (std::string_view rest = std::string_view(pending_).substr(2, end < 2 ? 0 : end - 2); !rest.empty();) {
    const std::size_t line_end = std::min(rest.find("\r\n"), rest.size());
    const std::string_view line = rest.substr(0, line_end);
    rest.remove_prefix(std::min(line_end + 2, rest.size()));
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return refuse("a part has a line in its head that is no field");
    if (!http::equal_no_case(trimmed(line.substr(0, colon)), "Content-Disposition")) continue;
    const std::string_view value = line.substr(colon + 1);
    begin.name = parameter(value, "name").value_or("");
    begin.filename = parameter(value, "filename").value_or("");
  }
  pending_.erase(0, end + 4);
  out.push_back(std::move(begin));
  state_ = State::body;
  return true;
}

std::optional<std::string> multipart_boundary(std::string_view content_type) {
  const std::string_view type = trimmed(content_type.substr(0, content_type.find(';')));
  if (!http::equal_no_case(type, "multipart/form-data")) return std::nullopt;
  auto boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > 200 || boundary->find_first_of("\r\n") != std::string::npos) return std::nullopt;
  return boundary;
}

}  // namespace space::agent
