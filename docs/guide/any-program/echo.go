// A UDP server that sends every datagram back: an arm of `laneway race udp-echo`.
//
//	go build -o /tmp/echo-go docs/guide/any-program/echo.go
//	laneway race udp-echo --arm '/tmp/echo-go --listen {address}:{port}'
package main

import (
	"flag"
	"log"
	"net"
)

func main() {
	listen := flag.String("listen", "", "ADDRESS:PORT")
	flag.Parse()
	at, err := net.ResolveUDPAddr("udp4", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server, err := net.ListenUDP("udp4", at)
	if err != nil {
		log.Fatal(err)
	}
	buffer := make([]byte, 65535)
	for {
		length, peer, err := server.ReadFromUDPAddrPort(buffer)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := server.WriteToUDPAddrPort(buffer[:length], peer); err != nil {
			log.Print(err)
		}
	}
}
