package main

func extra(ch chan int) {}
