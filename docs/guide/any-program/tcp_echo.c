/*
 * A TCP server that sends back what comes, by epoll: an arm of `laneway race tcp-echo`.
 *
 *   cc -O2 -o /tmp/tcp-echo docs/guide/any-program/tcp_echo.c
 *   laneway race tcp-echo --arm '/tmp/tcp-echo {address} {port}'
 *
 * A sketch: a peer that sends much and reads nothing stops it for every client.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int listening(const char *address, const char *port)
{
	struct sockaddr_in own = { .sin_family = AF_INET };
	int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);

	own.sin_port = htons((unsigned short)atoi(port));
	if (server < 0 || inet_pton(AF_INET, address, &own.sin_addr) != 1)
		return -1;
	setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(server, (struct sockaddr *)&own, sizeof(own)) || listen(server, 1024))
		return -1;
	return server;
}

static void answer(int peer)
{
	static char buffer[65536];
	ssize_t bytes = read(peer, buffer, sizeof(buffer)), sent = 0;

	while (sent < bytes) {
		ssize_t n = send(peer, buffer + sent, (size_t)(bytes - sent), MSG_NOSIGNAL);

		if (n < 0)
			break;
		sent += n;
	}
	if (bytes <= 0 || sent < bytes)
		close(peer);
}

int main(int argc, char **argv)
{
	struct epoll_event events[256], event = { .events = EPOLLIN };
	int ears = epoll_create1(0), server, one = 1;

	if (argc != 3 || (server = listening(argv[1], argv[2])) < 0) {
		fprintf(stderr, "usage: %s ADDRESS PORT, both free\n", argv[0]);
		return 2;
	}
	event.data.fd = server;
	epoll_ctl(ears, EPOLL_CTL_ADD, server, &event);
	for (;;) {
		int n = epoll_wait(ears, events, 256, -1);

		for (int i = 0; i < n; i++) {
			if (events[i].data.fd != server) {
				answer(events[i].data.fd);
				continue;
			}
			event.data.fd = accept(server, NULL, NULL);
			if (event.data.fd < 0)
				continue;
			setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			epoll_ctl(ears, EPOLL_CTL_ADD, event.data.fd, &event);
		}
	}
}
