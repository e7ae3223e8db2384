module github.com/kudobuilder/kuttl

go 1.25
