package pgtest

var MakeTemplate = makeTemplate
