package main

/*
#include <unistd.h>

extern void backInGo(void);
static void waitInC(void) { for (;;) pause(); }
static void throughC(void) { backInGo(); }
*/
import "C"

var held chan int

//export backInGo
func backInGo() { deeper(3) }

//go:noinline
func deeper(n int) {
	if n == 0 {
		<-held
		return
	}
	deeper(n - 1)
}

func extra(ch chan int) {
	held = ch
	go func() { C.waitInC() }()
	go func() { C.throughC() }()
}
