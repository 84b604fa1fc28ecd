#include "wire/egress_handover.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/file.h"
#include "base/unix_socket.h"

namespace space::wire {
namespace {

constexpr const char* kSandbox = "abcdefghijklmnopqrst";

struct Gateway {
  TempDir folder = *TempDir::make("/tmp", "space-handover-test-");
  std::string path = (folder.path() / "fds.sock").string();
  Fd listener = *listen_unix(path, SOCK_SEQPACKET, 0600);
  std::unique_ptr<EgressClient> client = *EgressClient::connect(path);
  Fd peer = *accept_unix(listener);
};

TEST(EgressClient, WaitsForAnAnswerThoughSomebodyMadeItsSocketNonBlocking) {
  Gateway gateway;
  ASSERT_EQ(::fcntl(gateway.client->socket().get(), F_SETFL, O_NONBLOCK), 0);
  std::thread late([&] {
    const auto packet = receive_packet(gateway.peer, sizeof(EgressRequest));
    ASSERT_TRUE(packet);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const EgressReply reply;
    ASSERT_TRUE(send_packet(gateway.peer, std::as_bytes(std::span(&reply, 1)), {}));
  });
  const auto done = gateway.client->detach(kSandbox, kSandbox);
  late.join();
  EXPECT_TRUE(done) << describe(done.error());
}

TEST(EgressClient, SaysThatTheGatewayIsGone) {
  Gateway gateway;
  gateway.peer = Fd();
  const auto done = gateway.client->detach(kSandbox, kSandbox);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorKind::unavailable);
}

}  // namespace
}  // namespace space::wire
