package main

type stack[T any] struct{ ch chan T }

func (s *stack[T]) pop() T { return <-s.ch }

//go:noinline
func generic[T any, U comparable](ch chan T, _ U) T {
	s := stack[T]{ch}
	return s.pop()
}

func extra(ch chan int) {
	go generic(ch, "a")
	go generic(make(chan *box), 7)
	go (&stack[struct{ a, b int }]{}).pop()
}
