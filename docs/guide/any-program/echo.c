/*
 * A UDP server that sends every datagram back: an arm of `laneway race udp-echo`.
 *
 *   cc -O2 -o /tmp/echo docs/guide/any-program/echo.c
 *   laneway race udp-echo --arm '/tmp/echo {address} {port}'
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	static char buffer[65535];
	struct sockaddr_in own = { .sin_family = AF_INET }, peer;
	int server = socket(AF_INET, SOCK_DGRAM, 0);

	if (argc != 3 || inet_pton(AF_INET, argv[1], &own.sin_addr) != 1) {
		fprintf(stderr, "usage: %s ADDRESS PORT\n", argv[0]);
		return 2;
	}
	own.sin_port = htons((unsigned short)atoi(argv[2]));
	if (server < 0 || bind(server, (struct sockaddr *)&own, sizeof(own))) {
		perror("bind");
		return 1;
	}
	for (;;) {
		socklen_t length = sizeof(peer);
		ssize_t bytes = recvfrom(server, buffer, sizeof(buffer), 0,
					 (struct sockaddr *)&peer, &length);

		if (bytes >= 0)
			sendto(server, buffer, (size_t)bytes, 0, (struct sockaddr *)&peer, length);
	}
}
