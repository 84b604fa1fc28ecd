#include "egress/credentials.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/encoding.h"

namespace space::egress {
namespace {

tl::unexpected<Refusal> refuse(int status, std::string_view code, std::string message, std::string next, bool security) {
  return tl::unexpected<Refusal>(Refusal{status,
                                         Error{ErrorKind::permission_denied, std::string(code),
                                               "the egress gateway refused this request: " + std::move(message), std::move(next)},
                                         "", security});
}

tl::unexpected<Refusal> misused(const Binding& binding) {
  return refuse(403, "placeholder_misused",
                fmt::format("it holds the placeholder of the credential {} where that is not put in", binding.credential),
                "send the placeholder to the host, path and place of its binding only", true);
}

bool holds(const http::Headers& headers, std::string_view text, std::string_view except = {}) {
  return std::any_of(headers.fields().begin(), headers.fields().end(), [&](const auto& field) {
    return !http::equal_no_case(field.first, except) &&
           (field.second.find(text) != std::string::npos || field.first.find(text) != std::string::npos);
  });
}

bool target_holds(const std::string& target, const std::string& text) {
  if (target.find(text) != std::string::npos) return true;
  const auto decoded = percent_decode(target);
  return decoded && decoded->find(text) != std::string::npos;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

// The target without the parameters called `key`, in any spelling.
std::string without_parameter(const std::string& target, const std::string& key) {
  const auto mark = target.find('?');
  if (mark == std::string::npos) return target;
  std::string out = target.substr(0, mark);
  std::string_view rest = std::string_view(target).substr(mark + 1);
  char glue = '?';
  while (!rest.empty()) {
    const auto end = rest.find('&');
    const std::string_view item = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const auto name = percent_decode(item.substr(0, item.find('=')), true);
    if (name && *name == key) continue;
    out.push_back(glue);
    out.append(item);
    glue = '&';
  }
  return out;
}

void add_pattern(Injection& injection, std::string_view text) {
  if (text.size() < 8) return;
  if (std::any_of(injection.patterns.begin(), injection.patterns.end(), [&](const auto& p) { return p->view() == text; })) return;
  injection.patterns.push_back(std::make_shared<const Secret>(text));
}

// What the base64 of a longer text always holds where the secret stands in it, `before` bytes (0 to 2) after a group of three: a server
// that encodes the whole field, "Bearer " and all, shows the secret so.
std::string inside_base64(std::string_view secret, std::size_t before, bool url) {
  std::string padded(before, '\0');
  padded.append(secret);
  std::string out = url ? base64url_encode(as_bytes(padded)) : base64_encode(as_bytes(padded));
  while (out.ends_with('=')) out.pop_back();
  if (padded.size() % 3 != 0) out.pop_back();  // the last character holds bits of what follows
  out.erase(0, before == 0 ? 0 : before + 1);  // the first ones bits of what stands before
  wipe_string(padded);
  return out;
}

// An upstream that shows the request may show the secret as it is, or as JSON, a URL or base64 would have it.
void add_patterns(Injection& injection, const Binding& binding, std::string_view secret) {
  add_pattern(injection, secret);
  std::string forms[] = {percent_encode(secret), json::serialize(json::string(secret)), base64_encode(as_bytes(secret)),
                         base64url_encode(as_bytes(secret)),
                         binding.place == Binding::Place::basic ? rendered(binding, secret).substr(6) : std::string()};
  if (forms[1].size() > 2) forms[1] = forms[1].substr(1, forms[1].size() - 2);
  for (std::string& form : forms) {
    while (form.ends_with('=')) form.pop_back();
    add_pattern(injection, form);
    wipe_string(form);
  }
  for (std::size_t before = 0; before < 3; ++before) {
    for (const bool url : {false, true}) {
      std::string form = inside_base64(secret, before, url);
      add_pattern(injection, form);
      wipe_string(form);
    }
  }
}

}  // namespace

Checked<Injection> inject(const CredentialTable& table, const Settings& settings, bool tls, CheckedRequest& request,
                          http::Headers& headers) {
  Injection injection;
  std::vector<std::string> taken;  // headers and parameters that have their value already: the first binding wins
  for (const Binding& b : settings.bindings) {
    const bool matches = tls && b.matches(request.to.name, request.to.port, request.method, request.path);
    if (!matches) {
      if (!b.placeholder.empty() && (holds(headers, b.placeholder) || target_holds(request.target, b.placeholder))) {
        // Another binding of the same credential may cover this request with the same placeholder.
        const bool covered = std::any_of(settings.bindings.begin(), settings.bindings.end(), [&](const Binding& other) {
          return other.placeholder == b.placeholder && tls && other.matches(request.to.name, request.to.port, request.method, request.path);
        });
        if (!covered) return misused(b);
      }
      continue;
    }
    const bool in_query = b.place == Binding::Place::query;
    const std::string place = in_query ? "?" + b.query_key : b.header;
    if (std::any_of(taken.begin(), taken.end(), [&](const std::string& t) { return http::equal_no_case(t, place); })) continue;
    const auto secret = table.find(b.credential);
    if (!secret)
      return refuse(503, "credential_missing", fmt::format("the credential {} that belongs here is not set", b.credential),
                    "set it with `space credential set`", false);
    const std::string_view value = secret->view();
    if (b.placeholder.empty()) {
      if (in_query) {
        request.target = without_parameter(request.target, b.query_key);
        request.target.append(request.target.find('?') == std::string::npos ? "?" : "&")
            .append(b.query_key)
            .append("=")
            .append(rendered(b, value));
      } else {
        headers.remove(b.header);
        headers.set(b.header, rendered(b, value));
      }
    } else if (in_query) {
      if (holds(headers, b.placeholder)) return misused(b);
      if (!target_holds(request.target, b.placeholder)) continue;
      const std::string wanted = b.query_key + "=" + percent_encode(b.placeholder);
      const auto at = request.target.find(wanted);
      const bool whole = at != std::string::npos && (request.target[at - 1] == '?' || request.target[at - 1] == '&') &&
                         (at + wanted.size() == request.target.size() || request.target[at + wanted.size()] == '&');
      if (!whole) return misused(b);
      request.target.replace(at + b.query_key.size() + 1, wanted.size() - b.query_key.size() - 1, rendered(b, value));
      if (target_holds(request.target, b.placeholder)) return misused(b);
    } else {
      if (holds(headers, b.placeholder, b.header) || target_holds(request.target, b.placeholder)) return misused(b);
      if (headers.count(b.header) == 0) continue;
      if (headers.count(b.header) > 1) return misused(b);
      std::string text(headers.get(b.header));
      if (b.place == Binding::Place::basic) {
        if (text.size() < 6 || !http::equal_no_case(std::string_view(text).substr(0, 6), "Basic ")) continue;
        auto pair = base64_decode(std::string_view(text).substr(6));
        if (!pair || pair->find(b.placeholder) == std::string::npos) continue;
        replace_all(*pair, b.placeholder, value);
        text = "Basic " + base64_encode(as_bytes(*pair));
        add_pattern(injection, std::string_view(text).substr(6));
        wipe_string(*pair);
      } else {
        if (text.find(b.placeholder) == std::string::npos) continue;
        replace_all(text, b.placeholder, value);
      }
      headers.set(b.header, text);
      wipe_string(text);
    }
    taken.push_back(place);
    add_patterns(injection, b, value);
    injection.names.append(injection.names.empty() ? "" : ",").append(b.credential);
  }
  if (injection.empty()) return injection;
  // So that what comes back can be read, and comes back whole: the secret cannot be fetched in halves.
  headers.remove("Accept-Encoding");
  headers.set("Accept-Encoding", "identity");
  for (const char* name : {"Range", "If-Range", "Sec-WebSocket-Extensions"}) headers.remove(name);
  return injection;
}

void wipe_fields(http::Headers& headers) {
  // In place: setting another value would leave the old bytes in freed memory.
  for (const auto& [name, value] : headers.fields()) wipe_string(const_cast<std::string&>(value));
}

Scrubber::Scrubber(const Injection& injection) : patterns_(injection.patterns) {
  // The longest first, so that a form that holds another one goes whole.
  std::stable_sort(patterns_.begin(), patterns_.end(), [](const auto& a, const auto& b) { return a->view().size() > b->view().size(); });
}

void Scrubber::replace(std::string& text) {
  for (const auto& pattern : patterns_) {
    const std::string_view secret = pattern->view();
    for (auto at = text.find(secret); at != std::string::npos; at = text.find(secret, at + secret.size())) {
      std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), secret.size(), '*');
      found_ = true;
    }
  }
}

std::size_t Scrubber::begins_secret() const {
  std::size_t longest = 0;
  for (const auto& pattern : patterns_) {
    const std::string_view secret = pattern->view();
    for (std::size_t n = std::min(secret.size() - 1, held_.size()); n > longest; --n)
      if (held_[held_.size() - n] == secret[0] && std::string_view(held_).substr(held_.size() - n) == secret.substr(0, n)) longest = n;
  }
  return longest;
}

std::string Scrubber::push(std::string_view bytes) {
  held_.append(bytes);
  replace(held_);
  std::size_t keep = 0;
  if (in_turns_) {
    keep = begins_secret();
  } else if (active()) {
    const auto control = std::find_if(held_.rbegin(), held_.rend(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
    keep = std::min(static_cast<std::size_t>(control - held_.rbegin()), patterns_.front()->view().size() - 1);  // the longest
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string Scrubber::finish() { return std::exchange(held_, {}); }

std::string Scrubber::whole(std::string_view text) {
  std::string out(text);
  replace(out);
  return out;
}

}  // namespace space::egress
