// The program of Microsoft's C# compiler: csc.dll ARGUMENTS, as those of the SDK's csc. build_tools.py compiles it with C# 7.3.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Microsoft.CodeAnalysis;
using Microsoft.CodeAnalysis.CSharp;
using Microsoft.CodeAnalysis.Text;

internal static class Program
{
    private static int Main(string[] words)
    {
        string here = Directory.GetCurrentDirectory();
        CSharpCommandLineArguments line = CSharpCommandLineParser.Default.Parse(words, here, null);
        List<Diagnostic> found = line.Errors.ToList();
        if (!found.Any(IsError))
        {
            CSharpCompilation compilation = CSharpCompilation.Create(
                line.CompilationName, line.SourceFiles.Select(file => Tree(file, line)),
                line.MetadataReferences.Select(one => MetadataReference.CreateFromFile(Path.Combine(here, one.Reference), one.Properties)),
                line.CompilationOptions);
            using (var assembly = new MemoryStream())
            using (var comments = new MemoryStream())
            {
                var result = compilation.Emit(assembly, null, line.DocumentationPath == null ? null : comments, null,
                    line.ManifestResources, line.EmitOptions);
                found.AddRange(result.Diagnostics);
                if (result.Success)
                    File.WriteAllBytes(Path.Combine(line.OutputDirectory, line.OutputFileName), assembly.ToArray());
                if (result.Success && line.DocumentationPath != null)
                    File.WriteAllBytes(line.DocumentationPath, comments.ToArray());
            }
        }
        foreach (Diagnostic one in found.Where(one => one.Severity >= DiagnosticSeverity.Warning && !one.IsSuppressed))
            Console.WriteLine(one);
        return found.Any(IsError) ? 1 : 0;
    }

    private static bool IsError(Diagnostic one)
    {
        return one.Severity == DiagnosticSeverity.Error;
    }

    private static SyntaxTree Tree(CommandLineSourceFile file, CSharpCommandLineArguments line)
    {
        using (FileStream stream = File.OpenRead(file.Path))
            return CSharpSyntaxTree.ParseText(SourceText.From(stream, line.Encoding, line.ChecksumAlgorithm), line.ParseOptions, file.Path);
    }
}
